// What operations there are, and which template, formula and operands each has.
//
// Adding an operation means: a formula in math/, an entry in registry.cc, and a kernel template if
// none of the present ones fits. docs/writing_a_kernel.md walks through it.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_templates/arguments.h"
#include "kernel_templates/broadcast.h"
#include "kernel_templates/config.h"
#include "kernel_templates/element_type.h"

namespace dorajit::kernels {

enum class Op : int {
  kCompose = 0,
  kComposeInner,
  kBackward,
  kNormAssembly,
  kComposeResidual,
  kComposeBiasedResidual,
  kResidualBackward,
  // The passes that `compose` is measured against; not offered by any public interface.
  kScaleByScalar,
  kScaleByGain,
  kScaleByGainMinusOne,
  kAdd,
};

enum class DeviceKind : int { kCpu = 0, kCuda = 1 };

enum class OperandRole { kInput, kOutput };

enum class OperandShape {
  kMatrix,     // rows x columns
  kBroadcast,  // one element per channel: per column or per row, as the variant says
  kSum,        // one element per channel, summed over the matrix
};

enum class Presence {
  kRequired,
  kOptional,  // an output that the caller may not want
  kForSum,    // an input that only the sum needs: required with it, not read without it
};

struct OperandSpec {
  std::string_view name;
  OperandRole role;
  OperandShape shape;
  Presence presence = Presence::kRequired;
};

struct Variant;

// Computes a variant in plain loops over arguments in host memory, with the very formula that the
// kernels include. Slow; what every config is checked against.
using ReferenceFunction = void (*)(const KernelArguments& arguments, const Variant& variant);

struct OpSpec {
  Op op;
  std::string_view name;
  std::span<const OperandSpec> operands;  // in the order of KernelArguments::operands
  std::span<const std::string_view> scalars;
  std::string_view formula;      // class template in math/
  std::string_view math_header;  // "math/compose.h"
  ReferenceFunction reference;
  int sum_operand;     // the index of the operand that is a sum, or -1
  bool has_broadcast;  // whether an operand is broadcast
};

const OpSpec& spec(Op op);
std::span<const OpSpec> all_ops();
std::span<const OpSpec> offered_ops();  // by the public interfaces

// An op with its element types and flags fixed: what one template instantiation serves.
struct Variant {
  Op op = Op::kCompose;
  Broadcast broadcast = Broadcast::kPerColumn;
  std::array<ElementType, kMaxOperands> types{};  // of the operands; the rest kFloat32

  [[nodiscard]] std::span<const ElementType> operand_types() const;
  [[nodiscard]] bool has(std::size_t operand) const {
    return types[operand] != ElementType::kAbsent;
  }
  [[nodiscard]] bool has_sum() const;
  friend bool operator==(const Variant&, const Variant&) = default;
};

std::string_view name(ElementType type);  // "f32", "bf16", "f16", "f64"; "-" for absent
std::optional<ElementType> parse_element_type(std::string_view text);

// The inverse of to_text(variant); nothing for text that it does not produce.
std::optional<Variant> parse_variant(std::string_view text);

// "compose/bf16,bf16,f32,bf16"; "backward.rows/bf16,bf16,f32,bf16,-,f32" per row and without d_base
std::string to_text(const Variant& variant);

// Whether the op serves the variant: f64 goes only with f64, every other mix is allowed; what is
// absent may be; something is written; and only ops with a broadcast operand have a per-row form.
bool is_supported(const Variant& variant);

// f64 when any operand is, else f32.
ElementType compute_type(const Variant& variant);

// Every supported variant of an op with all its operands, per column.
std::vector<Variant> all_variants(Op op);

// The template that serves a variant.
enum class TemplateKind { kElementwise, kColumnSums, kRowSums };
TemplateKind template_kind(const Variant& variant);

// The sources that a kernel of this variant is compiled from on a kind of device, and the names and
// content hashes of all that they include.
std::vector<std::string_view> source_roots(const Variant& variant, DeviceKind kind);
std::string source_identity(const Variant& variant, DeviceKind kind);

// The whole translation unit of one kernel: the includes and the one-line instantiation.
std::string instantiation(const Variant& variant, const Config& config, DeviceKind kind);

}  // namespace dorajit::kernels
