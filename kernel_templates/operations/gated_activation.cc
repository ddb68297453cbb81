#include "kernel_templates/math/gated_activation.h"

#include "kernel_templates/describe.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;

consteval Operand like(int other, Operand operand) {
  operand.typed_as = other;
  return operand;
}

constexpr Operand kForward[] = {
    {"gate", kInput, kMatrix}, like(0, {"up", kInput, kMatrix}), {"out", kOutput, kMatrix}};

enum : int { kGate = 1, kGateGain = 3, kGateMagnitude = 5, kDGate = 8, kDGateMagnitude = 10 };
constexpr Operand kBackward[] = {
    {"d_out", kInput, kMatrix},
    {"gate", kInput, kMatrix},
    like(kGate, {"up", kInput, kMatrix}),
    {"gate_gain", kInput, kPerChannel},
    like(kGateGain, {"up_gain", kInput, kPerChannel}),
    {"gate_magnitude", kInput, kPerChannel, Presence::kForSum},
    like(kGateMagnitude, {"up_magnitude", kInput, kPerChannel, Presence::kForSum}),
    {"out", kOutput, kMatrix, Presence::kOptional},
    {"d_gate", kOutput, kMatrix, Presence::kOptional},
    like(kDGate, {"d_up", kOutput, kMatrix, Presence::kOptional}),
    {"d_gate_magnitude", kOutput, kPerChannel, Presence::kOptional},
    like(kDGateMagnitude, {"d_up_magnitude", kOutput, kPerChannel, Presence::kForSum}),
};

constexpr std::string_view kHeader = "math/gated_activation.h";
constexpr std::string_view kBackwardDocumentation =
    "out = act(gate) * up; d_gate = gate_gain * (d_out * up * act'(gate)), d_up = up_gain * (d_out "
    "* act(gate)); d_gate_magnitude = (sum of d_gate / gate_gain * gate) / gate_magnitude, and so "
    "for up";

template <template <class> class Formula>
consteval Operation forward(std::string_view name, std::string_view documentation,
                            std::string_view formula) {
  return describe<Formula>({.name = name,
                            .documentation = documentation,
                            .operands = kForward,
                            .formula = formula,
                            .math_header = kHeader});
}

template <template <class> class Formula>
consteval Operation backward(std::string_view name, std::string_view formula) {
  return describe<Formula>({.name = name,
                            .documentation = kBackwardDocumentation,
                            .operands = kBackward,
                            .formula = formula,
                            .math_header = kHeader});
}

}  // namespace

extern constinit const Operation operation_gated_silu =
    forward<GatedSilu>("gated_silu", "out = silu(gate) * up", "GatedSilu");
extern constinit const Operation operation_gated_gelu =
    forward<GatedGelu>("gated_gelu", "out = gelu(gate) * up, with erf", "GatedGelu");
extern constinit const Operation operation_gated_gelu_tanh =
    forward<GatedGeluTanh>("gated_gelu_tanh", "out = gelu(gate) * up, with tanh", "GatedGeluTanh");
extern constinit const Operation operation_gated_silu_backward =
    backward<GatedSiluBackward>("gated_silu_backward", "GatedSiluBackward");
extern constinit const Operation operation_gated_gelu_backward =
    backward<GatedGeluBackward>("gated_gelu_backward", "GatedGeluBackward");
extern constinit const Operation operation_gated_gelu_tanh_backward =
    backward<GatedGeluTanhBackward>("gated_gelu_tanh_backward", "GatedGeluTanhBackward");

}  // namespace dorajit::kernels
