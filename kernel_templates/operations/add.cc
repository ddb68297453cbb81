#include "kernel_templates/describe.h"
#include "kernel_templates/math/unfused_passes.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kOperands[] = {
    {"a", kInput, kMatrix},
    {"b", kInput, kMatrix},
    {"y", kOutput, kMatrix},
};

}  // namespace

extern constinit const Operation operation_add = describe_pass<Add>({
    .name = "add",
    .documentation = "y = a + b",
    .operands = kOperands,
    .scalars = {},
    .formula = "Add",
    .math_header = "math/unfused_passes.h",
});

}  // namespace dorajit::kernels
