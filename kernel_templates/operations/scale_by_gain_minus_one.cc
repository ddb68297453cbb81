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

extern constinit const Operation operation_scale_by_gain_minus_one =
    describe_pass<ScaleByGainMinusOne>({
        .name = "scale_by_gain_minus_one",
        .documentation = "y = (gain - 1) * x",
        .operands = kOperands,
        .scalars = {},
        .formula = "ScaleByGainMinusOne",
        .math_header = "math/unfused_passes.h",
    });

}  // namespace dorajit::kernels
