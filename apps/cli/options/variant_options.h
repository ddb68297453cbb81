// Options that name a variant of an operation, and the sizes of its dimensions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace dorajit::cli {

// By the name of a dimension; 0 for a size that is not given.
using NamedSizes = std::map<std::string, std::int64_t, std::less<>>;

// Declares --rows, --cols and so on: one option for each dimension of any operation.
void add_size_options(CLI::App& app, NamedSizes& sizes);

bool names_any(const NamedSizes& sizes);

// "--rows R --cols C"
std::string size_options_text(const kernels::Operation& operation);

// The numbers of "4096x14336", which `separator` is between; nothing for any other text.
std::optional<std::vector<std::int64_t>> parse_numbers(std::string_view text, char separator);

// The numbers of "4096x14336"; kInvalidArgument for anything else, naming the operation's form.
Result<std::vector<std::int64_t>> parse_shape(std::string_view text,
                                              const kernels::Operation& operation);

// `listed` has the sizes of the first dimensions, in their order, `named` those of the others.
// kInvalidArgument unless each dimension has one size, which is positive. launch::check_size() has
// the upper bound.
Result<kernels::Sizes> make_sizes(const kernels::Operation& operation,
                                  std::span<const std::int64_t> listed, const NamedSizes& named);

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
