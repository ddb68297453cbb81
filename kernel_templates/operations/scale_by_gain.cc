#include "kernel_templates/describe.h"
#include "kernel_templates/math/unfused_passes.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kOperands[] = {
    {"x", kInput, kMatrix},
    {"gain", kInput, kPerChannel},
    {"y", kOutput, kMatrix},
};

}  // namespace

extern constinit const Operation operation_scale_by_gain = describe_pass<ScaleByGain>({
    .name = "scale_by_gain",
    .documentation = "y = gain * x",
    .operands = kOperands,
    .scalars = {},
    .formula = "ScaleByGain",
    .math_header = "math/unfused_passes.h",
});

}  // namespace dorajit::kernels
