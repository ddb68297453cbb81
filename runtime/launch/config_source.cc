#include "runtime/launch/config_source.h"

#include <iterator>
#include <utility>

namespace dorajit::launch {

std::string_view name(ConfigOrigin origin) {
  constexpr std::string_view kNames[] = {"locked",         "pinned",           "tuned",
                                         "user database",  "shipped database", "nearest shape",
                                         "nearest device", "default"};
  static_assert(std::size(kNames) == std::to_underlying(ConfigOrigin::kDefault) + 1);
  return kNames[std::to_underlying(origin)];
}

}  // namespace dorajit::launch
