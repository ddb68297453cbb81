#include "kernel_templates/config_text.h"

#include <array>
#include <charconv>
#include <format>

namespace dorajit::kernels {

std::string to_text(const Config& config) {
  return std::format("b{}-w{}-r{}-v{}-u{}-c{}", config.block_size, config.num_warps,
                     config.rows_per_program, config.vector_width, config.unroll,
                     static_cast<int>(config.cache_policy));
}

std::optional<Config> parse_config(std::string_view text) {
  const std::string_view original = text;
  constexpr std::string_view kTags = "bwrvuc";
  std::array<int, kTags.size()> values{};
  for (std::size_t i = 0; i < kTags.size(); ++i) {
    if (i > 0) {
      if (!text.starts_with('-')) return std::nullopt;
      text.remove_prefix(1);
    }
    if (!text.starts_with(kTags[i])) return std::nullopt;
    text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), values[i]);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  if (!text.empty() || values[5] < 0 || values[5] > 2) return std::nullopt;
  const Config config{values[0], values[1], values[2],
                      values[3], values[4], static_cast<CachePolicy>(values[5])};
  if (to_text(config) != original) return std::nullopt;
  return config;
}

}  // namespace dorajit::kernels
