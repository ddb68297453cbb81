#include "runtime/base/error.h"

namespace dorajit {

std::string_view name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kUnsupported:
      return "UNSUPPORTED";
    case StatusCode::kWrongDevice:
      return "WRONG_DEVICE";
    case StatusCode::kNoDriver:
      return "NO_DRIVER";
    case StatusCode::kNoCompiler:
      return "NO_COMPILER";
    case StatusCode::kCompileError:
      return "COMPILE_ERROR";
    case StatusCode::kDriverError:
      return "DRIVER_ERROR";
    case StatusCode::kOutOfMemory:
      return "OUT_OF_MEMORY";
    case StatusCode::kCaptureUnsafe:
      return "CAPTURE_UNSAFE";
    case StatusCode::kIoError:
      return "IO_ERROR";
    case StatusCode::kInternal:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

}  // namespace dorajit
