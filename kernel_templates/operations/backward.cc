// The gradients of compositions.
#include "kernel_templates/math/backward.h"

#include "kernel_templates/describe.h"
#include "kernel_templates/math/magnitude_backward.h"
#include "kernel_templates/math/residual_backward.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kBackwardOperands[] = {
    {"d_out", kInput, kMatrix},
    {"inner", kInput, kMatrix, Presence::kForSum},
    {"gain", kInput, kPerChannel},
    {"d_lora", kOutput, kMatrix, Presence::kOptional},
    {"d_base", kOutput, kMatrix, Presence::kOptional},
    {"d_gain", kOutput, kPerChannel, Presence::kOptional},
};

constexpr Operand kResidualBackwardOperands[] = {
    {"d_out", kInput, kMatrix},
    {"inner", kInput, kMatrix, Presence::kForSum},
    {"gain", kInput, kPerChannel},
    {"d_lora", kOutput, kMatrix, Presence::kOptional},
    {"d_result", kOutput, kMatrix, Presence::kOptional},
    {"d_gain", kOutput, kPerChannel, Presence::kOptional},
};

constexpr Operand kMagnitudeBackwardOperands[] = {
    {"d_out", kInput, kMatrix},
    {"inner", kInput, kMatrix, Presence::kForSum},
    {"gain", kInput, kPerChannel},
    {"divisor", kInput, kPerChannel, Presence::kForSum},
    {"d_lora", kOutput, kMatrix, Presence::kOptional},
    {"d_result", kOutput, kMatrix, Presence::kOptional},
    {"d_magnitude", kOutput, kPerChannel, Presence::kOptional},
};

constexpr std::string_view kScalars[] = {"scale"};

}  // namespace

extern constinit const Operation operation_backward = describe<Backward>({
    .name = "backward",
    .documentation = "d_lora = (gain * scale) * d_out, d_base = (gain - 1) * d_out, d_gain = sum "
                     "of inner * d_out",
    .operands = kBackwardOperands,
    .scalars = kScalars,
    .formula = "Backward",
    .math_header = "math/backward.h",
});

extern constinit const Operation operation_residual_backward = describe<ResidualBackward>({
    .name = "residual_backward",
    .documentation =
        "d_lora = (gain * scale) * d_out, d_result = gain * d_out, d_gain = sum of inner * d_out",
    .operands = kResidualBackwardOperands,
    .scalars = kScalars,
    .formula = "ResidualBackward",
    .math_header = "math/residual_backward.h",
});

extern constinit const Operation operation_magnitude_backward = describe<MagnitudeBackward>({
    .name = "magnitude_backward",
    .documentation = "d_lora = (gain * scale) * d_out, d_result = gain * d_out, d_magnitude = (sum "
                     "of inner * d_out) / divisor",
    .operands = kMagnitudeBackwardOperands,
    .scalars = kScalars,
    .formula = "MagnitudeBackward",
    .math_header = "math/magnitude_backward.h",
});

}  // namespace dorajit::kernels
