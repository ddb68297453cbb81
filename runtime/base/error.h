// Status codes, errors and results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace dorajit {

// The numbers are those of the C ABI (dorajit.h) and never change.
enum class StatusCode : std::int32_t {
  kOk = 0,
  kInvalidArgument = 1,  // an argument is wrong by itself: null, negative, misaligned, mismatched
  kUnsupported = 2,      // well formed, but no kernel supports it
  kWrongDevice = 3,      // memory or a tensor on a device other than the call's
  kNoDriver = 4,         // the NVIDIA driver is missing or too old
  kNoCompiler = 5,       // NVRTC or the host compiler is missing or too old
  kCompileError = 6,     // the compiler ran and failed; see the log
  kDriverError = 7,      // a driver call failed
  kOutOfMemory = 8,
  kCaptureUnsafe = 9,  // a stream is being captured and no kernel is loaded for the problem
  kIoError = 10,
  kInternal = 11,
};

constexpr std::string_view name(StatusCode code) {
  constexpr std::string_view kNames[] = {
      "OK",          "INVALID_ARGUMENT", "UNSUPPORTED",  "WRONG_DEVICE",  "NO_DRIVER",
      "NO_COMPILER", "COMPILE_ERROR",    "DRIVER_ERROR", "OUT_OF_MEMORY", "CAPTURE_UNSAFE",
      "IO_ERROR",    "INTERNAL"};
  static_assert(std::size(kNames) == std::to_underlying(StatusCode::kInternal) + 1);
  const auto number = static_cast<std::size_t>(code);
  return number < std::size(kNames) ? kNames[number] : "UNKNOWN";
}

struct Error {
  StatusCode code = StatusCode::kInternal;
  std::string message;  // names the argument, call or file, and what to do
  std::string log;      // complete compiler log for kCompileError, else empty

  friend bool operator==(const Error&, const Error&) = default;
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

inline std::unexpected<Error> fail(StatusCode code, std::string message, std::string log = {}) {
  return std::unexpected(Error{code, std::move(message), std::move(log)});
}

}  // namespace dorajit

#define DORAJIT_CONCATENATE_(a, b) a##b
#define DORAJIT_CONCATENATE(a, b) DORAJIT_CONCATENATE_(a, b)

// Returns from the enclosing function with the error of `expression`, if it has one.
#define DORAJIT_TRY(expression)                                  \
  do {                                                           \
    if (auto dorajit_status = (expression); !dorajit_status) {   \
      return std::unexpected(std::move(dorajit_status).error()); \
    }                                                            \
  } while (false)

// Defines `variable` as the value of `expression`, or returns its error from the enclosing
// function.
#define DORAJIT_ASSIGN(variable, expression)                                                   \
  auto DORAJIT_CONCATENATE(dorajit_result_, __LINE__) = (expression);                          \
  if (!DORAJIT_CONCATENATE(dorajit_result_, __LINE__)) {                                       \
    return std::unexpected(std::move(DORAJIT_CONCATENATE(dorajit_result_, __LINE__)).error()); \
  }                                                                                            \
  variable = *std::move(DORAJIT_CONCATENATE(dorajit_result_, __LINE__))
