#include "kernel_templates/math/backward.h"

#include "kernel_templates/describe.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kOperands[] = {
    {"d_out", kInput, kMatrix},
    {"inner", kInput, kMatrix, Presence::kForSum},
    {"gain", kInput, kPerChannel},
    {"d_lora", kOutput, kMatrix, Presence::kOptional},
    {"d_base", kOutput, kMatrix, Presence::kOptional},
    {"d_gain", kOutput, kPerChannel, Presence::kOptional},
};
constexpr std::string_view kScalars[] = {"scale"};

}  // namespace

extern constinit const Operation operation_backward = describe<Backward>({
    .name = "backward",
    .documentation = "d_lora = (gain * scale) * d_out, d_base = (gain - 1) * d_out, d_gain = sum "
                     "of inner * d_out",
    .operands = kOperands,
    .scalars = kScalars,
    .formula = "Backward",
    .math_header = "math/backward.h",
});

}  // namespace dorajit::kernels
