#include "kernel_templates/math/compose_residual.h"

#include "kernel_templates/describe.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kOperands[] = {
    {"lora", kInput, kMatrix},
    {"result", kInput, kMatrix},
    {"gain", kInput, kPerChannel},
    {"bias", kInput, kPerChannel, Presence::kOptional, Samples::kAroundZero},
    {"out", kOutput, kMatrix},
    {"inner", kOutput, kMatrix, Presence::kOptional},
};
constexpr std::string_view kScalars[] = {"scale"};

}  // namespace

extern constinit const Operation operation_compose_residual = describe<ComposeResidual>({
    .name = "compose_residual",
    .documentation = "out = result + ((gain - 1) * base + gain * (scale * lora)), inner = scale * "
                     "lora + base, base = result - bias",
    .operands = kOperands,
    .scalars = kScalars,
    .formula = "ComposeResidual",
    .math_header = "math/compose_residual.h",
});

}  // namespace dorajit::kernels
