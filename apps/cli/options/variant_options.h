// Options that name a variant of an operation.
#pragma once

#include <string>
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
  std::string gain_type{};           // empty: f32, or f64 beside f64
  std::vector<std::string> types{};  // of every operand; instead of the two above
  bool is_per_row = false;
};

// Declares --type, --gain-type, --types and --per-row.
void add_variant_options(CLI::App& app, VariantOptions& options);

// kInvalidArgument when a name is unknown, kUnsupported when no kernel has these types.
Result<kernels::Variant> make_variant(const VariantOptions& options);

}  // namespace dorajit::cli
