// Configs as short text, for databases, logs and the command line: "b2048-w8-r1-v8-u1-c0" or
// "BLOCK=256-VEC=4", with a mark and a number for each tunable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernel_templates/config.h"

namespace dorajit::kernels {

std::string to_text(const Config& config);

// "b2048", "BLOCK=256"
std::string to_text(const Mark& mark, std::int64_t number);

// The inverse of to_text(); nothing for other text. why_config_is_invalid() tells whether a
// template accepts the config.
std::optional<Config> parse_config(std::string_view text);

}  // namespace dorajit::kernels
