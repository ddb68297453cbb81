#include "apps/cli/options/variant_options.h"

#include <CLI/CLI.hpp>
#include <cstddef>
#include <format>
#include <ranges>
#include <string_view>

#include "apps/cli/terminal/text_format.h"
#include "kernel_templates/integer_types.h"

namespace dorajit::cli {
namespace {

using kernels::ElementType;

Result<ElementType> parse_type(std::string_view option, std::string_view text) {
  const auto type = kernels::parse_element_type(text);
  if (type && kernels::as_integer(*type) == nullptr) return *type;
  return fail(StatusCode::kInvalidArgument,
              std::format("{} {} is none of: f32, bf16, f16, f64", option, text));
}

Result<const kernels::Operation*> find_op(std::string_view name) {
  for (const kernels::Operation* op : kernels::all_operations()) {
    if (op->name == name) return op;
  }
  return fail(StatusCode::kInvalidArgument,
              std::format("--op {} is none of: {}", name,
                          joined(kernels::offered_operations(), ", ", &kernels::Operation::name)));
}

}  // namespace

void add_variant_options(CLI::App& app, VariantOptions& options) {
  CLI::Option* type =
      app.add_option("--type", options.type, "Element type of the activations [bf16]")
          ->option_text("f32|bf16|f16|f64");
  CLI::Option* gain = app.add_option("--gain-type", options.gain_type,
                                     "Element type of the gain [f32; f64 beside f64]")
                          ->option_text("f32|bf16|f16|f64");
  // Not by CLI11's delimiter, which drops empty parts.
  const auto read_types = [&options](const std::string& text) {
    options.types.clear();
    for (const auto part : std::views::split(text, ',')) {
      options.types.emplace_back(std::string_view(part));
    }
  };
  app.add_option_function<std::string>(
         "--types", read_types,
         "Element type of every operand instead, as in bf16,bf16,f32,bf16; - for one that is left "
         "out")
      ->option_text("TYPE,...")
      ->excludes(type)
      ->excludes(gain);
  app.add_flag("--per-row", options.is_per_row,
               "One gain per row instead of per column, as convolutions have it");
}

Result<kernels::Variant> make_variant(const VariantOptions& options) {
  DORAJIT_ASSIGN(const kernels::Operation* op, find_op(options.op));
  kernels::Variant variant{.operation = op};
  if (options.is_per_row) variant.broadcast = kernels::Broadcast::kPerRow;
  if (!options.types.empty()) {
    if (options.types.size() != op->operands.size()) {
      return fail(
          StatusCode::kInvalidArgument,
          std::format("--types {} names {} types; {} has {} operands: {}",
                      joined(options.types, ","), options.types.size(), op->name,
                      op->operands.size(), joined(op->operands, ",", &kernels::Operand::name)));
    }
    for (std::size_t i = 0; i < options.types.size(); ++i) {
      DORAJIT_ASSIGN(variant.types[i], parse_type("--types", options.types[i]));
    }
  } else {
    DORAJIT_ASSIGN(const ElementType type, parse_type("--type", options.type));
    ElementType gain =
        type == ElementType::kFloat64 ? ElementType::kFloat64 : ElementType::kFloat32;
    if (!options.gain_type.empty()) {
      DORAJIT_ASSIGN(gain, parse_type("--gain-type", options.gain_type));
    }
    for (std::size_t i = 0; i < op->operands.size(); ++i) {
      const kernels::Operand& operand = op->operands[i];
      variant.types[i] = operand.samples == kernels::Samples::kAroundOne ? gain : type;
    }
  }
  if (!kernels::is_supported(variant)) {
    return fail(
        StatusCode::kUnsupported,
        std::format("no kernel serves {}: f64 goes only with f64, only optional operands may be "
                    "left out, and only a gain can be per row",
                    to_text(variant)));
  }
  return variant;
}

}  // namespace dorajit::cli
