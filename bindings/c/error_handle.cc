#include "bindings/c/error_handle.h"

#include <utility>

namespace dorajit::bindings {
namespace {

constexpr bool is_frozen(dorajit_status number, StatusCode code, dorajit_status frozen) {
  return number == frozen && static_cast<dorajit_status>(code) == frozen;
}

static_assert(is_frozen(DORAJIT_OK, StatusCode::kOk, 0));
static_assert(is_frozen(DORAJIT_INVALID_ARGUMENT, StatusCode::kInvalidArgument, 1));
static_assert(is_frozen(DORAJIT_UNSUPPORTED, StatusCode::kUnsupported, 2));
static_assert(is_frozen(DORAJIT_WRONG_DEVICE, StatusCode::kWrongDevice, 3));
static_assert(is_frozen(DORAJIT_NO_DRIVER, StatusCode::kNoDriver, 4));
static_assert(is_frozen(DORAJIT_NO_COMPILER, StatusCode::kNoCompiler, 5));
static_assert(is_frozen(DORAJIT_COMPILE_ERROR, StatusCode::kCompileError, 6));
static_assert(is_frozen(DORAJIT_DRIVER_ERROR, StatusCode::kDriverError, 7));
static_assert(is_frozen(DORAJIT_OUT_OF_MEMORY, StatusCode::kOutOfMemory, 8));
static_assert(is_frozen(DORAJIT_CAPTURE_UNSAFE, StatusCode::kCaptureUnsafe, 9));
static_assert(is_frozen(DORAJIT_IO_ERROR, StatusCode::kIoError, 10));
static_assert(is_frozen(DORAJIT_INTERNAL, StatusCode::kInternal, 11));

// Short enough for the small-string optimization of every standard library: no allocation.
dorajit_error out_of_memory{
    .code = StatusCode::kOutOfMemory, .message = "out of memory", .log = {}};

}  // namespace

dorajit_status report(dorajit_error** out, Error error) noexcept {
  const auto status = static_cast<dorajit_status>(error.code);
  if (out == nullptr) return status;
  auto* handle = new (std::nothrow) dorajit_error{
      .code = error.code, .message = std::move(error.message), .log = std::move(error.log)};
  if (handle == nullptr) return report_out_of_memory(out);
  *out = handle;
  return status;
}

dorajit_status report_out_of_memory(dorajit_error** out) noexcept {
  if (out != nullptr) *out = &out_of_memory;
  return DORAJIT_OUT_OF_MEMORY;
}

dorajit_status report_exception(dorajit_error** out, std::string_view what) noexcept {
  try {
    return report(out,
                  {.code = StatusCode::kInternal,
                   .message = std::format("internal error of dorajit, please report it: {}", what),
                   .log = {}});
  } catch (...) {
    return report_out_of_memory(out);
  }
}

}  // namespace dorajit::bindings

// name() returns string literals, which are null-terminated.
const char* dorajit_status_name(dorajit_status status) {
  return dorajit::name(static_cast<dorajit::StatusCode>(status)).data();
}

dorajit_status dorajit_error_status(const dorajit_error* error) {
  return error == nullptr ? DORAJIT_OK : static_cast<dorajit_status>(error->code);
}

const char* dorajit_error_message(const dorajit_error* error) {
  return error == nullptr ? "" : error->message.c_str();
}

const char* dorajit_error_log(const dorajit_error* error) {
  return error == nullptr ? "" : error->log.c_str();
}

void dorajit_error_destroy(dorajit_error* error) {
  if (error != &dorajit::bindings::out_of_memory) delete error;
}
