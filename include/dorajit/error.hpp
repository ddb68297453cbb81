// Status codes and the exception of the C++ interface (dorajit.hpp).
#ifndef DORAJIT_ERROR_HPP_
#define DORAJIT_ERROR_HPP_

#if __cplusplus < 201703L
#error \
    "dorajit.hpp needs C++17: compile with -std=c++17 or newer, or use the C interface, dorajit.h"
#include <dorajit/see_the_error_above>  // ends the compilation
#elif !defined(__cpp_exceptions)
#error \
    "dorajit.hpp throws exceptions: compile without -fno-exceptions, or use the C interface, dorajit.h"
#include <dorajit/see_the_error_above>  // ends the compilation
#endif

#include <dorajit/dorajit.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace dorajit {
// Inline, so that translation units compiled against different versions may meet in one process.
inline namespace v0 {

// The status codes of the C interface; dorajit.h describes when each is returned.
enum class Status : std::int32_t {
  kOk = DORAJIT_OK,
  kInvalidArgument = DORAJIT_INVALID_ARGUMENT,
  kUnsupported = DORAJIT_UNSUPPORTED,
  kWrongDevice = DORAJIT_WRONG_DEVICE,
  kNoDriver = DORAJIT_NO_DRIVER,
  kNoCompiler = DORAJIT_NO_COMPILER,
  kCompileError = DORAJIT_COMPILE_ERROR,
  kDriverError = DORAJIT_DRIVER_ERROR,
  kOutOfMemory = DORAJIT_OUT_OF_MEMORY,
  kCaptureUnsafe = DORAJIT_CAPTURE_UNSAFE,
  kIoError = DORAJIT_IO_ERROR,
  kInternal = DORAJIT_INTERNAL
};

// "INVALID_ARGUMENT" and so on. Static.
inline const char* status_name(Status status) {
  return dorajit_status_name(static_cast<dorajit_status>(status));
}

// The exception that every function here throws. what() names the argument, call or file, and the
// remedy.
class Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& message, std::string log = {})
      : std::runtime_error(message),
        status_(status),
        log_(std::make_shared<const std::string>(std::move(log))) {}

  Status status() const noexcept { return status_; }

  // The compiler's complete log for kCompileError, else empty.
  const std::string& log() const noexcept { return *log_; }

 private:
  Status status_;
  std::shared_ptr<const std::string> log_;  // shared, so that copying an Error does not throw
};

namespace detail {

struct DestroyError {
  void operator()(dorajit_error* error) const noexcept { dorajit_error_destroy(error); }
};

// Runs `call(dorajit_error** error)`, a function of the C interface, and throws the error that it
// returns. The out-parameter is read in a separate statement, because compilers evaluate arguments
// in different orders.
template <class Call>
void check(const Call& call) {
  dorajit_error* error = nullptr;
  const dorajit_status status = call(&error);
  if (status == DORAJIT_OK) return;
  const std::unique_ptr<dorajit_error, DestroyError> owner(error);
  throw Error(static_cast<Status>(status), dorajit_error_message(error), dorajit_error_log(error));
}

}  // namespace detail

}  // namespace v0
}  // namespace dorajit

#endif  // DORAJIT_ERROR_HPP_
