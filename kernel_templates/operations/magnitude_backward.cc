#include "kernel_templates/math/magnitude_backward.h"

#include "kernel_templates/describe.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kOperands[] = {
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

extern constinit const Operation operation_magnitude_backward = describe<MagnitudeBackward>({
    .name = "magnitude_backward",
    .documentation = "d_lora = (gain * scale) * d_out, d_result = gain * d_out, d_magnitude = (sum "
                     "of inner * d_out) / divisor",
    .operands = kOperands,
    .scalars = kScalars,
    .formula = "MagnitudeBackward",
    .math_header = "math/magnitude_backward.h",
});

}  // namespace dorajit::kernels
