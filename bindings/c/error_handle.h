// What crosses the C ABI: errors, which a guard makes of exceptions, and structs that carry their
// own size, so that later versions can add fields.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <format>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "dorajit/dorajit.h"
#include "runtime/base/error.h"

struct dorajit_error {
  dorajit::StatusCode code;
  std::string message;
  std::string log;
};

namespace dorajit::bindings {

// Stores the error in `*out`, unless `out` is null, and returns its status. Never throws: if memory
// for the error is exhausted, `*out` is a shared, static out-of-memory error.
dorajit_status report(dorajit_error** out, Error error) noexcept;

dorajit_status report_out_of_memory(dorajit_error** out) noexcept;
dorajit_status report_exception(dorajit_error** out, std::string_view what) noexcept;

// Runs the body of an entry point. An error that it returns, or an exception that it throws,
// becomes the status and `*out`.
template <class Body>
dorajit_status guarded(dorajit_error** out, const Body& body) noexcept {
  if (out != nullptr) *out = nullptr;
  try {
    Status status = body();
    if (status) return DORAJIT_OK;
    return report(out, std::move(status).error());
  } catch (const std::bad_alloc&) {
    return report_out_of_memory(out);
  } catch (const std::exception& exception) {
    return report_exception(out, exception.what());
  } catch (...) {
    return report_exception(out, "an exception of unknown type");
  }
}

// Returns kInvalidArgument, naming the argument, if it is null.
inline Status require(const void* argument, std::string_view function, std::string_view name,
                      std::string_view what_to_do) {
  if (argument != nullptr) return {};
  return fail(StatusCode::kInvalidArgument,
              std::format("{}: argument `{}` is null; {}", function, name, what_to_do));
}

// Refuses a struct_size that no version of the struct has had.
inline Status check_struct_size(std::string_view function, std::string_view argument,
                                std::string_view type, std::size_t struct_size,
                                std::size_t smallest) {
  if (struct_size >= smallest) return {};
  return fail(StatusCode::kInvalidArgument,
              std::format("{}: argument `{}` has a struct_size of {}; set it to sizeof({})",
                          function, argument, struct_size, type));
}

// Refuses a struct of a later version whose additional fields are not zero.
inline Status check_unknown_fields(std::string_view function, std::string_view argument,
                                   std::span<const std::byte> bytes, std::size_t known) {
  const auto excess = bytes.subspan(std::min(known, bytes.size()));
  if (std::ranges::all_of(excess, [](std::byte byte) { return byte == std::byte{0}; })) return {};
  return fail(
      StatusCode::kUnsupported,
      std::format("{}: argument `{}` sets fields that this version of dorajit does not "
                  "know (struct_size {}, known {}); leave them zero, or install the version "
                  "of dorajit that it was compiled for",
                  function, argument, bytes.size(), known));
}

// Copies as many bytes as the caller's struct has. Fields of a later version are zeroed.
template <class Struct>
void copy_sized(Struct known, Struct* caller) {
  const std::size_t wanted = known.struct_size = caller->struct_size;
  std::memset(caller, 0, wanted);
  std::memcpy(caller, &known, std::min(wanted, sizeof known));
}

}  // namespace dorajit::bindings
