// Configs as short text, for databases, logs and the command line: "b2048-w8-r1-v8-u1-c0", with a
// mark and a number for each tunable.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernel_templates/config.h"

namespace dorajit::kernels {

std::string to_text(const Config& config);

// The inverse of to_text(); nothing for other text. why_config_is_invalid() tells whether a
// template accepts the config.
std::optional<Config> parse_config(std::string_view text);

}  // namespace dorajit::kernels
