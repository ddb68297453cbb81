#include "kernel_templates/math/compose.h"

#include "kernel_templates/describe.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kOperands[] = {
    {"lora", kInput, kMatrix},
    {"base", kInput, kMatrix},
    {"gain", kInput, kPerChannel},
    {"out", kOutput, kMatrix},
};
constexpr std::string_view kScalars[] = {"scale"};

}  // namespace

extern constinit const Operation operation_compose = describe<Compose>({
    .name = "compose",
    .documentation = "out = (gain - 1) * base + gain * (scale * lora)",
    .operands = kOperands,
    .scalars = kScalars,
    .formula = "Compose",
    .math_header = "math/compose.h",
});

}  // namespace dorajit::kernels
