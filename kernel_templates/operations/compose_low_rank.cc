// compose_residual with a low-rank product in the place of lora, which is never in memory.
#include "kernel_templates/templates/compose_low_rank.h"

#include <cstddef>
#include <numeric>
#include <vector>

#include "kernel_templates/builtin_compose_low_rank.h"
#include "kernel_templates/describe.h"
#include "kernel_templates/math/compose_residual.h"
#include "kernel_templates/reference.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Dimension kDimensions[] = {
    {.name = "rows", .keying = Keying::kBucketed, .mark = 'r'},
    {.name = "cols", .keying = Keying::kExact, .mark = 'c'},
    {.name = "rank", .keying = Keying::kExact, .mark = 'k', .most = 1024},
};
constexpr OperandShape kRowsRank = {
    .text = "rows, rank", .outer = kLowRankRows, .inner = kLowRankRank};
constexpr OperandShape kColsRank = {
    .text = "cols, rank", .outer = kLowRankColumns, .inner = kLowRankRank};
constexpr OperandShape kRowsCols = {
    .text = "rows, cols", .outer = kLowRankRows, .inner = kLowRankColumns};
constexpr OperandShape kOfCols = {.text = "cols", .inner = kLowRankColumns};

constexpr Operand kOperands[] = {
    // Kernels by mma.sync find out at run time how the rows of both factors are aligned.
    {.name = "low", .role = kInput, .shape = kRowsRank, .limits_vectors = false},
    {.name = "lora_B", .role = kInput, .shape = kColsRank, .limits_vectors = false},
    {"result", kInput, kRowsCols},
    {"gain", kInput, kOfCols},
    {"bias", kInput, kOfCols, Presence::kOptional, Samples::kAroundZero},
    {"out", kOutput, kRowsCols},
    {"inner", kOutput, kRowsCols, Presence::kOptional},
};
constexpr std::string_view kScalars[] = {"scale"};

// The elements of a factor in double, row by row.
std::vector<double> widened(const KernelArguments& arguments, const Variant& variant,
                            LowRankOperand factor, long long rows, long long rank) {
  std::vector<double> elements;
  elements.reserve(static_cast<std::size_t>(rows * rank));
  for (long long row = 0; row < rows; ++row) {
    for (long long k = 0; k < rank; ++k) {
      elements.push_back(load_element<double>(
          arguments.operands[factor], variant.types[static_cast<std::size_t>(factor)], row, k));
    }
  }
  return elements;
}

// In double, in plain loops: what kernels are held against within the tolerance.
void evaluate(const KernelArguments& arguments, const Variant& variant) {
  const auto load = [&](LowRankOperand operand, long long row, long long column) {
    return load_element<double>(arguments.operands[operand],
                                variant.types[static_cast<std::size_t>(operand)], row, column);
  };
  const auto store = [&](LowRankOperand operand, long long row, long long column, double value) {
    store_element<double>(arguments.operands[operand],
                          variant.types[static_cast<std::size_t>(operand)], row, column, value);
  };
  const ComposeResidual<double> formula(arguments.scalars);
  const long long rows = arguments.sizes[kLowRankRows];
  const long long columns = arguments.sizes[kLowRankColumns];
  const long long rank = low_rank_depth(arguments.scalars[0], arguments.sizes[kLowRankRank]);
  const auto low = widened(arguments, variant, kLowRankLow, rows, rank);
  const auto factor = widened(arguments, variant, kLowRankLoraB, columns, rank);
  for (long long row = 0; row < rows; ++row) {
    for (long long column = 0; column < columns; ++column) {
      const double product =
          std::inner_product(low.begin() + row * rank, low.begin() + (row + 1) * rank,
                             factor.begin() + column * rank, 0.0);
      const double matrix[] = {product, load(kLowRankResult, row, column)};
      const double broadcast[] = {load(kLowRankGain, 0, column), load(kLowRankBias, 0, column)};
      double made[2];
      formula(matrix, broadcast, made);
      store(kLowRankOut, row, column, made[0]);
      store(kLowRankInner, row, column, made[1]);
    }
  }
}

std::string_view why_not(const Variant& variant) {
  const ElementType low = variant.types[kLowRankLow];
  if (low == variant.types[kLowRankLoraB] && size_in_bytes(low) == 2) return "";
  return "`low` and `lora_B` must have one 16-bit type, bf16 or f16; multiply others by a matrix "
         "product and call compose_residual";
}

bool moves_boxes(const Sizes& sizes) { return low_rank_is_long(sizes[kLowRankRank]); }

const Template& select(const Variant&) { return compose_low_rank_template; }

}  // namespace

extern constinit const Operation operation_compose_low_rank = checked({
    .name = "compose_low_rank",
    .documentation = "out and inner of compose_residual with lora = low @ lora_B^T, which is never "
                     "in memory",
    .dimensions = kDimensions,
    .operands = kOperands,
    .scalars = kScalars,
    .reference = evaluate,
    .select_template = select,
    .builtin = BuiltinComposeLowRank::kernel,
    .why_unsupported = why_not,
    .moves_boxes = moves_boxes,
    .tolerance = 2e-5,
});

}  // namespace dorajit::kernels
