// What an operation is, and which template and sources serve a variant of it.
//
// Each operation is an object that a file of operations/ defines; docs/writing_a_kernel.md walks
// through adding one. The layers above know an operation by its object and by its name alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

enum class DeviceKind : int { kCpu = 0, kCuda = 1 };

enum class OperandRole { kInput, kOutput };

// How the key of a problem holds the size of a dimension.
enum class Keying {
  kExact,
  kBucketed,  // rounded up to a power of two
  kDerived,   // not at all: it follows from the other sizes and the variant
};

// What a model's layer gives a dimension, so that the problems of a model follow from its layers.
enum class LayerSize {
  kNone,  // nothing: no problem of the operation follows from a layer
  kOne,
  kTokens,
  kOutFeatures,
  kInFeatures,
  kRank,
};

// A named size of an operation. Operands that share a dimension must agree on its size.
struct Dimension {
  std::string_view name;
  Keying keying;
  char mark = '\0';  // stands before the size in the text of a problem: "c4096"; 0 if derived
  LayerSize layer_size = LayerSize::kNone;
  // Of a derived one, the dimensions that it is counted along, as indices: as large as the first
  // per column, a divisor of the second per row.
  int columns = -1;
  int rows = -1;
  std::int64_t most = 0;  // calls with a larger size are refused; 0: any size is served
};

// The sizes of an operation's dimensions, in its order; 0 beyond them.
using Sizes = std::array<std::int64_t, kMaxDimensions>;

// Which dimensions an operand has, as indices into those of its operation.
struct OperandShape {
  std::string_view text;  // "rows, cols"; ends with a null character
  int outer = -1;         // one for each row; -1 for a vector
  int inner = 0;          // one for each element of a row; contiguous

  [[nodiscard]] constexpr bool is_matrix() const { return outer >= 0; }
  friend constexpr bool operator==(const OperandShape& a, const OperandShape& b) {
    return a.outer == b.outer && a.inner == b.inner;
  }
};

enum class Presence {
  kRequired,
  kOptional,  // an output that the caller may not want, or an input that is zero without a tensor
  kForSum,    // an input that only the sum needs: required with it, not read without it
};

// The element type that a model's layer gives an operand.
enum class UsualType {
  kOfActivations,
  kOfGain,
  kOfSums,  // f32, or f64 beside f64, whatever the layer has
};

// What tuning fills an input with: normally distributed values, with a deviation of 1 around zero,
// of 0.0015 around one, as trained gains were measured.
enum class Samples { kAroundZero, kAroundOne };

struct Operand {
  std::string_view name;  // ends with a null character, as every name of the table
  OperandRole role;
  OperandShape shape;
  Presence presence = Presence::kRequired;
  UsualType usual_type = shape.is_matrix() ? UsualType::kOfActivations : UsualType::kOfGain;
  Samples samples = !shape.is_matrix() && usual_type == UsualType::kOfGain ? Samples::kAroundOne
                                                                           : Samples::kAroundZero;
  // Whether kernels read it in vectors whose width the alignment class limits.
  bool limits_vectors = true;
};

struct Template;
struct Variant;

// Computes a variant in plain loops over arguments in host memory, with the very formula that the
// kernels include. Slow; what every config is checked against.
using ReferenceFunction = void (*)(const KernelArguments& arguments, const Variant& variant);

// A kernel that was compiled into the library, for every mix of element types. `run` takes programs
// [first, last) of the first stage, `finish` those of the second; it is null where there is none.
struct BuiltinKernel {
  using Function = void (*)(const Variant& variant, const KernelArguments& arguments,
                            long long first, long long last);
  Function run = nullptr;
  Function finish = nullptr;
};

// Immutable, and there for as long as the process is.
struct Operation {
  std::string_view name;
  std::string_view documentation;  // one line: what is computed
  std::span<const Dimension> dimensions;
  std::span<const Operand> operands;  // in the order of KernelArguments::operands
  std::span<const std::string_view> scalars;
  // Class template in the header "math/compose.h"; both are empty where the template alone is the
  // kernel.
  std::string_view formula{};
  std::string_view math_header{};
  ReferenceFunction reference;
  const Template& (*select_template)(const Variant& variant);
  // Null: the library holds no CPU kernel of it.
  BuiltinKernel (*builtin)(const Variant& variant) = nullptr;
  // Beyond what is_supported() asks of every operation: why the variant is not served, as in
  // "`gain` needs `magnitude`"; empty if it is. Null: there is nothing more to ask.
  std::string_view (*why_unsupported)(const Variant& variant) = nullptr;
  bool is_offered = true;  // by the public interfaces; not what only measurements use
  int sum_operand = -1;    // the index of the operand that is a sum, or -1
  // Which of the optional operands calls usually give together, a bit for the index of each. Empty:
  // all of them, all but the inputs, all but the outputs, and none.
  std::span<const unsigned> usual_forms{};
  bool has_broadcast = false;  // whether an operand is broadcast
  // Whether kernels with the widest vectors may have the copy engine of a GPU (TMA) move matrices
  // of those sizes: the widest alignment class then asks for 16 bytes of each matrix and of its
  // rows, also of one that limits no vectors. Null: never.
  bool (*moves_boxes)(const Sizes& sizes) = nullptr;
  bool is_one_row = false;  // the same for any shape: its tensors are taken for one long row
  // How far from the reference an output may be beyond its rounding, relative to the larger of the
  // element and the root mean square of the output. 0: no bit may differ. Two configs always give
  // the same bits.
  double tolerance = 0;
};

// All operations, in the order in which CMake lists operations/*.cc. Usable during the
// initialisation of other objects.
std::span<const Operation* const> all_operations();

// Those that the public interfaces offer.
std::vector<const Operation*> offered_operations();

// Null for a name that no operation has.
const Operation* find_operation(std::string_view name);

// The operation of a name that stands in the source: ends the process if there is none.
const Operation& operation(std::string_view name);

// An operation with its element types and flags fixed: what one template instantiation serves.
struct Variant {
  const Operation* operation = nullptr;
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

// Whether the operation serves the variant: f64 goes only with f64, every other mix is allowed;
// what is absent may be; something is written; only operations with a broadcast operand have a
// per-row form; and the operation has nothing against it.
bool is_supported(const Variant& variant);

// f64 when any operand is, else f32.
ElementType compute_type(const Variant& variant);

// Every supported variant of an operation with all its operands, per column.
std::vector<Variant> all_variants(const Operation& operation);

// The sources that a kernel of this variant is compiled from on a kind of device, the formula's
// first if there is one, and the names and content hashes of all that they include.
std::vector<std::string_view> source_roots(const Variant& variant, DeviceKind kind);
std::string source_identity(const Variant& variant, DeviceKind kind);

// The whole translation unit of one kernel: the includes and the one-line instantiation.
std::string instantiation(const Variant& variant, const Config& config, DeviceKind kind);

}  // namespace dorajit::kernels
