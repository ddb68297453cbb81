// Options that name a variant of an operation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace dorajit::cli {

struct VariantOptions {
  std::string op = "compose";
  std::string type = "bf16";
  std::string gain_type{};  // empty: f32, or f64 beside f64
  std::string types{};      // of every operand, separated by commas; instead of the two above
  bool is_per_row = false;
};

// Declares --op, for commands that take one operation.
void add_op_option(CLI::App& app, VariantOptions& options);

// Declares --type, --gain-type, --types and --per-row.
void add_variant_options(CLI::App& app, VariantOptions& options);

// The parts of `types`.
std::vector<std::string_view> split_types(std::string_view text);

// kInvalidArgument when a name is unknown, kUnsupported when no kernel has these types.
Result<kernels::Variant> make_variant(const VariantOptions& options);

}  // namespace dorajit::cli
