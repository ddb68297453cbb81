// An operation without a formula, with its own dimensions and its own template.
#include "kernel_templates/describe.h"
#include "kernel_templates/reference.h"
#include "kernel_templates/template.h"

namespace dorajit::kernels {

extern const Template tile_products_template;

namespace {

using enum OperandRole;

enum Size : std::size_t { kRowsOfX, kInner, kColsOfY };

constexpr Dimension kDimensions[] = {
    {.name = "rows", .keying = Keying::kBucketed, .mark = 'r'},
    {.name = "inner", .keying = Keying::kExact, .mark = 'i'},
    {.name = "cols", .keying = Keying::kExact, .mark = 'c'},
};
constexpr OperandShape kX = {.text = "rows, inner", .outer = kRowsOfX, .inner = kInner};
constexpr OperandShape kY = {.text = "inner, cols", .outer = kInner, .inner = kColsOfY};
constexpr OperandShape kOut = {.text = "rows, cols", .outer = kRowsOfX, .inner = kColsOfY};
constexpr OperandShape kOfRows = {.text = "rows", .inner = kRowsOfX};

constexpr Operand kOperands[] = {
    {"x", kInput, kX},
    {"y", kInput, kY},
    {"bias", kInput, kOfRows, Presence::kOptional, Samples::kAroundZero},
    {"out", kOutput, kOut},
};
constexpr std::string_view kScalars[] = {"alpha", "beta"};

void evaluate(const KernelArguments& arguments, const Variant& variant) {
  const auto* const operands = arguments.operands;
  const auto& types = variant.types;
  const auto alpha = static_cast<float>(arguments.scalars[0]);
  const auto beta = static_cast<float>(arguments.scalars[1]);
  for (long long row = 0; row < arguments.sizes[kRowsOfX]; ++row) {
    const float bias = variant.has(2) ? load_element<float>(operands[2], types[2], 0, row) : 0;
    for (long long col = 0; col < arguments.sizes[kColsOfY]; ++col) {
      float sum = 0;
      for (long long k = 0; k < arguments.sizes[kInner]; ++k) {
        const float product = load_element<float>(operands[0], types[0], row, k) *
                              load_element<float>(operands[1], types[1], k, col);
        sum = sum + product;
      }
      const float scaled = alpha * sum;
      const float added = beta * bias;
      store_element<float>(operands[3], types[3], row, col, scaled + added);
    }
  }
}

std::string_view why_not(const Variant& variant) {
  const bool is_double = compute_type(variant) == ElementType::kFloat64;
  return is_double ? "there is no kernel for f64; give f32, bf16 or f16" : "";
}

const Template& select(const Variant&) { return tile_products_template; }

}  // namespace

extern constinit const Operation operation_tile_products = checked({
    .name = "tile_products",
    .documentation = "out = alpha * (x @ y) + beta * bias",
    .dimensions = kDimensions,
    .operands = kOperands,
    .scalars = kScalars,
    .reference = evaluate,
    .select_template = select,
    .why_unsupported = why_not,
});

}  // namespace dorajit::kernels
