// The configs of an own kernel: every combination of its parameters' values.
#include <algorithm>
#include <cstdint>
#include <format>
#include <utility>
#include <vector>

#include "own_kernels/own_operation.h"

namespace dorajit::own_kernels {

using kernels::Config;

Status list_space(OwnOperation& own) {
  const auto& parameters = own.given.parameters;
  if (parameters.size() > Config::kMaxTunables) {
    return fail(StatusCode::kInvalidArgument,
                std::format("kernel description: there are {} parameters; at most {} are served",
                            parameters.size(), Config::kMaxTunables));
  }
  std::size_t count = 1;
  for (const Parameter& parameter : parameters) {
    own.standard.append({.mark = kernels::Mark(parameter.name), .value = parameter.standard});
    // Values and counts are bounded before they are multiplied.
    count *= std::min(parameter.values.size(), Description::kMaxConfigs + 1);
    if (count > Description::kMaxConfigs) {
      return refuse_field("parameters", std::format("make more than {} configs; give fewer values",
                                                    Description::kMaxConfigs));
    }
  }
  // All combinations, those beyond the default in an order that has no direction: of a space that
  // is too large to be tried whole, the first are as good a sample as any.
  std::vector<std::pair<std::uint32_t, Config>> order;
  for (std::size_t code = 0; code < count; ++code) {
    Config config;
    std::size_t rest = code;
    for (const Parameter& parameter : parameters) {
      config.append({.mark = kernels::Mark(parameter.name),
                     .value = parameter.values[rest % parameter.values.size()]});
      rest /= parameter.values.size();
    }
    order.emplace_back(static_cast<std::uint32_t>(code) * 2654435761U, config);
  }
  std::ranges::sort(order, {}, &std::pair<std::uint32_t, Config>::first);
  own.space = {own.standard};
  for (const auto& [place, config] : order) {
    if (config != own.standard) own.space.push_back(config);
  }
  return {};
}

}  // namespace dorajit::own_kernels
