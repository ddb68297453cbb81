#include "kernel_templates/math/compose_inner.h"

#include "kernel_templates/describe.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kOperands[] = {
    {"lora", kInput, kMatrix}, {"base", kInput, kMatrix},   {"gain", kInput, kPerChannel},
    {"out", kOutput, kMatrix}, {"inner", kOutput, kMatrix},
};
constexpr std::string_view kScalars[] = {"scale"};

}  // namespace

extern constinit const Operation operation_compose_inner = describe<ComposeInner>({
    .name = "compose_inner",
    .documentation = "compose, and inner = scale * lora + base",
    .operands = kOperands,
    .scalars = kScalars,
    .formula = "ComposeInner",
    .math_header = "math/compose_inner.h",
});

}  // namespace dorajit::kernels
