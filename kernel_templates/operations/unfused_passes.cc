// Passes over memory that only measurements launch: what compose does in one pass.
#include "kernel_templates/math/unfused_passes.h"

#include "kernel_templates/describe.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kAddOperands[] = {
    {"a", kInput, kMatrix},
    {"b", kInput, kMatrix},
    {"y", kOutput, kMatrix},
};

constexpr Operand kScaleByScalarOperands[] = {
    {"x", kInput, kMatrix},
    {"y", kOutput, kMatrix},
};

constexpr Operand kScaleByGainOperands[] = {
    {"x", kInput, kMatrix},
    {"gain", kInput, kPerChannel},
    {"y", kOutput, kMatrix},
};

constexpr std::string_view kScalars[] = {"scale"};

}  // namespace

extern constinit const Operation operation_add = describe_pass<Add>({
    .name = "add",
    .documentation = "y = a + b",
    .operands = kAddOperands,
    .scalars = {},
    .formula = "Add",
    .math_header = "math/unfused_passes.h",
});

extern constinit const Operation operation_scale_by_scalar = describe_pass<ScaleByScalar>({
    .name = "scale_by_scalar",
    .documentation = "y = scale * x",
    .operands = kScaleByScalarOperands,
    .scalars = kScalars,
    .formula = "ScaleByScalar",
    .math_header = "math/unfused_passes.h",
});

extern constinit const Operation operation_scale_by_gain = describe_pass<ScaleByGain>({
    .name = "scale_by_gain",
    .documentation = "y = gain * x",
    .operands = kScaleByGainOperands,
    .scalars = {},
    .formula = "ScaleByGain",
    .math_header = "math/unfused_passes.h",
});

extern constinit const Operation operation_scale_by_gain_minus_one =
    describe_pass<ScaleByGainMinusOne>({
        .name = "scale_by_gain_minus_one",
        .documentation = "y = (gain - 1) * x",
        .operands = kScaleByGainOperands,
        .scalars = {},
        .formula = "ScaleByGainMinusOne",
        .math_header = "math/unfused_passes.h",
    });

}  // namespace dorajit::kernels
