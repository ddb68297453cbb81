// The range of a number on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <format>
#include <string>

namespace dorajit::cli {

// As CLI::Range, which lets NaN pass.
inline CLI::Validator number_range(double min, double max) {
  const std::string range = std::format("[{} - {}]", min, max);
  return {[=](const std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= min && value <= max) {
              return {};
            }
            return std::format("Value {} not in range {}", text, range);
          },
          std::format("FLOAT in {}", range)};
}

}  // namespace dorajit::cli
