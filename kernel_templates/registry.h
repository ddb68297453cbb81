// What operations there are, and which template, formula and operands each has.
//
// Adding an operation means: a formula in math/, an entry in registry.cc, and a kernel template if
// none of the present ones fits. README.md walks through it.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_templates/arguments.h"
#include "kernel_templates/config.h"
#include "kernel_templates/element_type.h"

namespace dorajit::kernels {

enum class Op : int {
  kCompose = 0,
  // The passes that `compose` is measured against; not offered by any public interface.
  kScaleByScalar,
  kScaleByGain,
  kScaleByGainMinusOne,
  kAdd,
};

enum class DeviceKind : int { kCpu = 0, kCuda = 1 };

enum class OperandRole { kInput, kOutput };

enum class OperandShape {
  kMatrix,   // rows x columns
  kColumns,  // one element per column, the same for every row
};

struct OperandSpec {
  std::string_view name;
  OperandRole role;
  OperandShape shape;
};

// Computes the op in plain loops over arguments in host memory, with the very formula that the
// kernels include. Slow; what every config is checked against.
using ReferenceFunction = void (*)(const KernelArguments& arguments,
                                   std::span<const ElementType> types);

// A kernel that was compiled into the library: runs programs [first, last).
using CpuFunction = void (*)(const KernelArguments* arguments, long long first_program,
                             long long last_program);

struct OpSpec {
  Op op;
  std::string_view name;
  std::span<const OperandSpec> operands;  // in the order of KernelArguments::operands
  std::span<const std::string_view> scalars;
  std::string_view formula;        // class template in math/
  std::string_view math_header;    // "math/compose.h"
  std::string_view cuda_template;  // "cuda/elementwise.cuh"
  std::string_view cpu_template;   // "cpu/elementwise.h"
  std::string_view entry_macro;    // defined by both templates
  ReferenceFunction reference;
};

const OpSpec& spec(Op op);
std::span<const OpSpec> all_ops();

// An op with its element types fixed: what one template instantiation serves.
struct Variant {
  Op op = Op::kCompose;
  std::array<ElementType, kMaxOperands> types{};  // of the operands; the rest kFloat32

  [[nodiscard]] std::span<const ElementType> operand_types() const;
  friend bool operator==(const Variant&, const Variant&) = default;
};

std::string_view name(ElementType type);  // "f32", "bf16", "f16", "f64"
std::optional<ElementType> parse_element_type(std::string_view text);

// "compose/bf16,bf16,f32,bf16"
std::string to_text(const Variant& variant);

// f64 goes only with f64; every other mix is allowed.
bool is_supported(const Variant& variant);

// Every supported variant of an op.
std::vector<Variant> all_variants(Op op);

// The sources that a kernel of this op is compiled from on a kind of device, and the names and
// content hashes of all that they include.
std::vector<std::string_view> source_roots(Op op, DeviceKind kind);
std::string source_identity(Op op, DeviceKind kind);

// The whole translation unit of one kernel: the includes and the one-line instantiation.
std::string instantiation(const Variant& variant, const Config& config, DeviceKind kind);

// The kernel that the library holds for a variant on the CPU; null for ops that have none.
CpuFunction builtin_cpu_kernel(const Variant& variant);
// The config with which every built-in kernel was instantiated (num_warps is a matter of launch).
Config builtin_cpu_config();

}  // namespace dorajit::kernels
