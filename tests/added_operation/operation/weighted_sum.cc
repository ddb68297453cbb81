#include "tests/added_operation/operation/math/weighted_sum.h"

#include "kernel_templates/describe.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kOperands[] = {
    {"x", kInput, kMatrix},
    {"y", kInput, kMatrix},
    {"out", kOutput, kMatrix},
};
constexpr std::string_view kScalars[] = {"alpha", "beta"};

}  // namespace

extern constinit const Operation operation_weighted_sum = describe<WeightedSum>({
    .name = "weighted_sum",
    .documentation = "out = alpha * x + beta * y",
    .operands = kOperands,
    .scalars = kScalars,
    .formula = "WeightedSum",
    .math_header = "math/weighted_sum.h",
});

}  // namespace dorajit::kernels
