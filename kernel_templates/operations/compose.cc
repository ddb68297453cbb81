// Compositions of the results of a layer and of its adapter.
#include "kernel_templates/math/compose.h"

#include "kernel_templates/describe.h"
#include "kernel_templates/math/compose_inner.h"
#include "kernel_templates/math/compose_residual.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kComposeOperands[] = {
    {"lora", kInput, kMatrix},
    {"base", kInput, kMatrix},
    {"gain", kInput, kPerChannel},
    {"out", kOutput, kMatrix},
};

constexpr Operand kComposeInnerOperands[] = {
    {"lora", kInput, kMatrix}, {"base", kInput, kMatrix},   {"gain", kInput, kPerChannel},
    {"out", kOutput, kMatrix}, {"inner", kOutput, kMatrix},
};

constexpr Operand kComposeResidualOperands[] = {
    {"lora", kInput, kMatrix},
    {"result", kInput, kMatrix},
    {"gain", kInput, kPerChannel},
    {"bias", kInput, kPerChannel, Presence::kOptional, Samples::kAroundZero},
    {"out", kOutput, kMatrix},
    {"inner", kOutput, kMatrix, Presence::kOptional},
};

constexpr std::string_view kScalars[] = {"scale"};

}  // namespace

extern constinit const Operation operation_compose = describe<Compose>({
    .name = "compose",
    .documentation = "out = (gain - 1) * base + gain * (scale * lora)",
    .operands = kComposeOperands,
    .scalars = kScalars,
    .formula = "Compose",
    .math_header = "math/compose.h",
});

extern constinit const Operation operation_compose_inner = describe<ComposeInner>({
    .name = "compose_inner",
    .documentation = "compose, and inner = scale * lora + base",
    .operands = kComposeInnerOperands,
    .scalars = kScalars,
    .formula = "ComposeInner",
    .math_header = "math/compose_inner.h",
});

extern constinit const Operation operation_compose_residual = describe<ComposeResidual>({
    .name = "compose_residual",
    .documentation = "out = result + ((gain - 1) * base + gain * (scale * lora)), inner = scale * "
                     "lora + base, base = result - bias",
    .operands = kComposeResidualOperands,
    .scalars = kScalars,
    .formula = "ComposeResidual",
    .math_header = "math/compose_residual.h",
});

}  // namespace dorajit::kernels
