// Row norms of a weight with its low-rank update and the gains derived from them, and the assembly
// of such norms from three sums.
#include "kernel_templates/templates/weight_norm.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel_templates/builtin_weight_norm.h"
#include "kernel_templates/describe.h"
#include "kernel_templates/math/norm_assembly.h"
#include "kernel_templates/reference.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

// The copy engine takes coordinates of 32 bits with a sign.
constexpr std::int64_t kMostFeatures = (std::int64_t{1} << 31) - 1024;

constexpr Dimension kDimensions[] = {
    {.name = "out_features", .keying = Keying::kBucketed, .mark = 'o', .most = kMostFeatures},
    {.name = "in_features", .keying = Keying::kExact, .mark = 'i', .most = kMostFeatures},
    {.name = "rank", .keying = Keying::kExact, .mark = 'k', .most = 1024},
};
constexpr OperandShape kOutIn = {
    .text = "out_features, in_features", .outer = kNormRows, .inner = kNormColumns};
constexpr OperandShape kRankIn = {
    .text = "rank, in_features", .outer = kNormRank, .inner = kNormColumns};
constexpr OperandShape kOutRank = {
    .text = "out_features, rank", .outer = kNormRows, .inner = kNormRank};
constexpr OperandShape kOut = {.text = "out_features", .inner = kNormRows};

constexpr Operand kOperands[] = {
    {"weight", kInput, kOutIn},
    {.name = "lora_A", .role = kInput, .shape = kRankIn, .is_converted = true},
    // Its rows are short: kernels determine their alignment at run time.
    {.name = "lora_B",
     .role = kInput,
     .shape = kOutRank,
     .limits_vectors = false,
     .is_converted = true},
    {.name = "magnitude",
     .role = kInput,
     .shape = kOut,
     .presence = Presence::kOptional,
     .limits_vectors = false},
    {"norm", kOutput, kOut, Presence::kOptional},
    {"norm_square", kOutput, kOut, Presence::kOptional},
    {"gain", kOutput, kOut, Presence::kOptional},
    // The divisor of the magnitude, and therefore of its gradient.
    {"divisor", kOutput, kOut, Presence::kOptional},
};
constexpr std::string_view kScalars[] = {"scale"};

constexpr Operand kAssemblyOperands[] = {
    {"w_norm_sq", kInput, kMatrix},
    {"cross", kInput, kMatrix},
    {"ba_norm_sq", kInput, kMatrix},
    {"norm", kOutput, kMatrix},
};

// The elements in double precision, row by row.
std::vector<double> widened(const KernelArguments& arguments, const Variant& variant, int operand,
                            long long rows, long long columns) {
  std::vector<double> elements;
  elements.reserve(static_cast<std::size_t>(rows * columns));
  for (long long row = 0; row < rows; ++row) {
    for (long long column = 0; column < columns; ++column) {
      elements.push_back(load_element<double>(arguments.operands[operand],
                                              variant.types[static_cast<std::size_t>(operand)], row,
                                              column));
    }
  }
  return elements;
}

// In double precision, in plain loops: the reference for kernels, within the tolerance.
void evaluate(const KernelArguments& arguments, const Variant& variant) {
  const long long rows = arguments.sizes[kNormRows];
  const long long columns = arguments.sizes[kNormColumns];
  const double scale = arguments.scalars[0];
  const long long rank = scale == 0 ? 0 : arguments.sizes[kNormRank];
  const auto weight = widened(arguments, variant, kNormWeight, rows, columns);
  const auto a = widened(arguments, variant, kNormLoraA, rank, columns);
  const auto b = widened(arguments, variant, kNormLoraB, rows, rank);
  std::vector<double> values(static_cast<std::size_t>(columns));
  for (long long row = 0; row < rows; ++row) {
    std::ranges::fill(values, 0.0);
    for (long long k = 0; k < rank; ++k) {
      const double factor = scale * b[static_cast<std::size_t>(row * rank + k)];
      const double* const from = a.data() + k * columns;
      for (long long j = 0; j < columns; ++j) {
        values[static_cast<std::size_t>(j)] += factor * from[j];
      }
    }
    double square = 0;
    for (long long j = 0; j < columns; ++j) {
      const double value =
          values[static_cast<std::size_t>(j)] + weight[static_cast<std::size_t>(row * columns + j)];
      square += value * value;
    }
    const double norm = std::sqrt(square);
    store_element<double>(arguments.operands[kNormNorm], variant.types[kNormNorm], 0, row, norm);
    store_element<double>(arguments.operands[kNormSquare], variant.types[kNormSquare], 0, row,
                          square);
    if (!variant.has(kNormGain)) continue;
    const ElementType type = variant.types[kNormMagnitude];
    double rounded = 0;
    const OperandArgument place{.data = &rounded, .row_stride = 0};
    store_element<double>(place, type, 0, 0, divisor_of(norm, least_norm(type)));
    const double divisor = load_element<double>(place, type, 0, 0);
    const double magnitude = load_element<double>(arguments.operands[kNormMagnitude], type, 0, row);
    store_element<double>(arguments.operands[kNormGain], variant.types[kNormGain], 0, row,
                          magnitude / divisor);
    store_element<double>(arguments.operands[kNormDivisor], variant.types[kNormDivisor], 0, row,
                          divisor);
  }
}

std::string_view why_not(const Variant& variant) {
  if (variant.has(kNormDivisor) && !variant.has(kNormGain)) {
    return "`divisor` comes with `gain`; pass both or `gain` alone";
  }
  if (variant.has(kNormGain) == variant.has(kNormMagnitude)) return "";
  return variant.has(kNormGain) ? "`gain` is made of `magnitude`; pass it"
                                : "`magnitude` is read for `gain` alone; pass both or neither";
}

const Template& select(const Variant&) { return weight_norm_template; }

}  // namespace

extern constinit const Operation operation_weight_norm = checked({
    .name = "weight_norm",
    .documentation =
        "norm = the norms of the rows of weight + scale * lora_B @ lora_A, norm_square "
        "= their squares, gain = magnitude / divisor, divisor = the norm, no less than the eps of "
        "the magnitude's type and rounded to it",
    .dimensions = kDimensions,
    .operands = kOperands,
    .scalars = kScalars,
    .reference = evaluate,
    .select_template = select,
    .builtin = builtin_weight_norm,
    .why_unsupported = why_not,
    .tolerance = 1e-5,
});

extern constinit const Operation operation_norm_assembly = describe<NormAssembly>({
    .name = "norm_assembly",
    .documentation = "norm = sqrt(max(w_norm_sq + 2 scale * cross + scale^2 * ba_norm_sq, 0))",
    .operands = kAssemblyOperands,
    .scalars = kScalars,
    .formula = "NormAssembly",
    .math_header = "math/norm_assembly.h",
});

}  // namespace dorajit::kernels
