#include "kernel_templates/math/norm_assembly.h"

#include "kernel_templates/describe.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

constexpr Operand kOperands[] = {
    {"w_norm_sq", kInput, kMatrix},
    {"cross", kInput, kMatrix},
    {"ba_norm_sq", kInput, kMatrix},
    {"norm", kOutput, kMatrix},
};
constexpr std::string_view kScalars[] = {"scale"};

}  // namespace

extern constinit const Operation operation_norm_assembly = describe<NormAssembly>({
    .name = "norm_assembly",
    .documentation = "norm = sqrt(max(w_norm_sq + 2 scale * cross + scale^2 * ba_norm_sq, 0))",
    .operands = kOperands,
    .scalars = kScalars,
    .formula = "NormAssembly",
    .math_header = "math/norm_assembly.h",
});

}  // namespace dorajit::kernels
