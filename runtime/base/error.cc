#include "runtime/base/error.h"

#include <cstddef>
#include <iterator>

namespace dorajit {

std::string_view name(StatusCode code) {
  constexpr std::string_view kNames[] = {
      "OK",          "INVALID_ARGUMENT", "UNSUPPORTED",  "WRONG_DEVICE",  "NO_DRIVER",
      "NO_COMPILER", "COMPILE_ERROR",    "DRIVER_ERROR", "OUT_OF_MEMORY", "CAPTURE_UNSAFE",
      "IO_ERROR",    "INTERNAL"};
  static_assert(std::size(kNames) == std::to_underlying(StatusCode::kInternal) + 1);
  const auto number = static_cast<std::size_t>(code);
  return number < std::size(kNames) ? kNames[number] : "UNKNOWN";
}

}  // namespace dorajit
