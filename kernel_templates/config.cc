#include "kernel_templates/config.h"

#include <algorithm>
#include <charconv>
#include <format>

namespace dorajit::kernels {
namespace {

// Removes a mark and its number from the front of `text`.
std::optional<Tunable> take_tunable(std::string_view& text) {
  const std::size_t equals = text.substr(0, text.find('-')).find('=');
  const std::string_view name = text.substr(0, equals == std::string_view::npos ? 1 : equals);
  if (name.size() > Mark::kMaxCharacters) return std::nullopt;
  Tunable tunable{.mark = Mark(name)};
  if (name.empty() || tunable.mark.is_letter() != (equals == std::string_view::npos)) {
    return std::nullopt;
  }
  text.remove_prefix(name.size() + (tunable.mark.is_letter() ? 0 : 1));
  const auto [end, error] = std::from_chars(text.begin(), text.end(), tunable.value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.begin()));
  return tunable;
}

bool has(const Config& config, const Mark& mark) {
  return std::ranges::contains(config.tunables(), mark, &Tunable::mark);
}

}  // namespace

std::string to_text(const Mark& mark, std::int64_t number) {
  return std::format("{}{}{}", mark.text(), mark.is_letter() ? "" : "=", number);
}

std::string to_text(const Config& config) {
  std::string text;
  for (const auto& [mark, value] : config.tunables()) {
    if (!text.empty()) text.push_back('-');
    text += to_text(mark, value);
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
