#include "kernel_templates/config_text.h"

#include <charconv>
#include <format>

namespace dorajit::kernels {
namespace {

// Removes a mark and its number from the front of `text`.
std::optional<Tunable> take_tunable(std::string_view& text) {
  if (text.empty() || text.front() < 'a' || text.front() > 'z') return std::nullopt;
  Tunable tunable{.mark = text.front()};
  text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.begin(), text.end(), tunable.value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.begin()));
  return tunable;
}

bool has(const Config& config, char mark) {
  return std::ranges::contains(config.tunables(), mark, &Tunable::mark);
}

}  // namespace

std::string to_text(const Config& config) {
  std::string text;
  for (const auto& [mark, value] : config.tunables()) {
    if (!text.empty()) text.push_back('-');
    text += std::format("{}{}", mark, value);
  }
  return text;
}

std::optional<Config> parse_config(std::string_view text) {
  Config config;
  for (std::string_view rest = text; config.tunables().empty() || !rest.empty();) {
    if (!config.tunables().empty()) {
      if (!rest.starts_with('-')) return std::nullopt;
      rest.remove_prefix(1);
    }
    const auto tunable = take_tunable(rest);
    if (!tunable || has(config, tunable->mark) ||
        config.tunables().size() == Config::kMaxTunables) {
      return std::nullopt;
    }
    config.append(*tunable);
  }
  if (to_text(config) != text) return std::nullopt;
  return config;
}

}  // namespace dorajit::kernels
