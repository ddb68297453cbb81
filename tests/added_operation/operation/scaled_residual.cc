#include "tests/added_operation/operation/math/scaled_residual.h"

#include "kernel_templates/describe.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kOperands[] = {
    {"x", kInput, kMatrix},
    {"residual", kInput, kMatrix},
    {"gain", kInput, kPerChannel},
    {"out", kOutput, kMatrix},
};
constexpr std::string_view kScalars[] = {"scale"};

}  // namespace

extern constinit const Operation operation_scaled_residual = describe<ScaledResidual>({
    .name = "scaled_residual",
    .documentation = "out = gain * (scale * x) + residual",
    .operands = kOperands,
    .scalars = kScalars,
    .formula = "ScaledResidual",
    .math_header = "math/scaled_residual.h",
});

}  // namespace dorajit::kernels
