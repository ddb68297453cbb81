#include "kernel_templates/describe.h"
#include "kernel_templates/math/unfused_passes.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kOperands[] = {
    {"x", kInput, kMatrix},
    {"y", kOutput, kMatrix},
};
constexpr std::string_view kScalars[] = {"scale"};

}  // namespace

extern constinit const Operation operation_scale_by_scalar = describe_pass<ScaleByScalar>({
    .name = "scale_by_scalar",
    .documentation = "y = scale * x",
    .operands = kOperands,
    .scalars = kScalars,
    .formula = "ScaleByScalar",
    .math_header = "math/unfused_passes.h",
});

}  // namespace dorajit::kernels
