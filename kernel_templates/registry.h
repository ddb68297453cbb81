// What an operation is, and which template and sources serve a variant of it.
//
// Each operation is an object that a file in operations/ defines; docs/writing_a_kernel.md
// describes how to add one. The layers above refer to an operation only by its object and its name.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
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

// How the key of a problem represents the size of a dimension.
enum class Keying {
  kExact,
  kBucketed,  // rounded up to a power of two
  kDerived,   // not in the key: it follows from the other sizes and the variant
  kConstant,  // not in the key: it is always `most`
  kComputed,  // not in the key: Template::derive_sizes() computes it from the others
  kStride,    // the distance of elements of a tensor, not in the key: tuning takes what
              // Template::derive_sizes() says
};

// A named size of an operation. Operands that share a dimension must agree on its size.
struct Dimension {
  std::string_view name;
  Keying keying;
  Mark mark{};  // precedes the size in the text of a problem: "c4096"; empty if derived
  // Indices of the two dimensions that a derived one is counted along: per column it has the size
  // of the first; per row it is a divisor of the second.
  int columns = -1;
  int rows = -1;
  std::int64_t most = 0;  // calls with a larger size are refused; 0: any size is served
  int scalar = -1;        // index of the scalar that defines the size; -1: the tensors define it
  // Whether the alignment class of a problem tells which powers of two divide the size.
  bool limits_class = false;
};

// The sizes of an operation's dimensions, in its order; unused entries are 0. KernelArguments has
// room for the first kMaxDimensions.
inline constexpr std::size_t kMaxSizes = 12;
using Sizes = std::array<std::int64_t, kMaxSizes>;

// The dimensions of an operand, as indices into those of its operation.
struct OperandShape {
  std::string_view text;  // "rows, cols"; null-terminated
  int outer = -1;         // index of the row dimension; -1 for a vector
  int inner = 0;          // index of the dimension along a row; contiguous
  // Indices of further dimensions before the inner one, all contiguous together. Vectors only.
  std::span<const int> leading{};
  bool is_exact = false;  // whether a tensor must have exactly these dimensions, not flattened ones
  // With is_exact: for each dimension the index of the size that is its stride in elements, or -1
  // for the last dimensions, which are contiguous. Empty: all are contiguous.
  std::span<const int> strides{};

  [[nodiscard]] constexpr bool is_matrix() const { return outer >= 0; }
  friend constexpr bool operator==(const OperandShape& a, const OperandShape& b) {
    return a.outer == b.outer && a.inner == b.inner && std::ranges::equal(a.leading, b.leading);
  }
};

enum class Presence {
  kRequired,
  kOptional,  // an output that may be left out, or an input that counts as zero without a tensor
  kForSum,  // an input that only the sums need, or a further sum: with the first sum, and only then
};

// The values that tuning fills an input with: normally distributed, with a deviation of 1 around
// zero, or of 0.0015 around one, as measured on trained gains.
enum class Samples { kAroundZero, kAroundOne };

// Of evenly distributed floating-point values.
struct Range {
  double least;
  double most;
};

struct Operand {
  std::string_view name;  // null-terminated, as every name of the table
  OperandRole role;
  OperandShape shape;
  Presence presence = Presence::kRequired;
  Samples samples = shape.is_matrix() ? Samples::kAroundZero : Samples::kAroundOne;
  std::optional<Range> range{};  // in place of `samples`
  // Whether kernels read it in vectors whose width is limited by the alignment class.
  bool limits_vectors = true;
  // Whether kernels that read it in vectors convert elements of more than 16 bits to 16 bits first,
  // one by one, so that these do not limit the class.
  bool is_converted = false;
  bool is_read = false;       // for an output: whether kernels read it before they write it
  std::size_t alignment = 0;  // required alignment in bytes; 0: that of its elements
  // Whether the alignment class says nothing about it, so that verification misaligns it.
  bool is_unaligned = false;
  int typed_as = -1;  // index of an earlier operand that has the same element type; -1: any
};

struct Template;
struct Variant;

// Computes a variant in plain loops over arguments in host memory, with the same formula that the
// kernels include. Slow; every config is checked against it.
using ReferenceFunction = void (*)(const KernelArguments& arguments, const Variant& variant);

// A kernel that is compiled into the library, for every mix of element types. `run` executes
// programs [first, last) of the first stage, `finish` those of the second; `finish` is null if
// there is no second stage.
struct BuiltinKernel {
  using Function = void (*)(const Variant& variant, const KernelArguments& arguments,
                            long long first, long long last);
  Function run = nullptr;
  Function finish = nullptr;
};

// Immutable, with static lifetime.
struct Operation {
  std::string_view name;
  std::string_view documentation;  // one line: what is computed
  std::span<const Dimension> dimensions;
  std::span<const Operand> operands;  // in the order of KernelArguments::operands
  std::span<const std::string_view> scalars;
  // A class template in the header "math/compose.h"; both are empty if the template alone is the
  // kernel.
  std::string_view formula{};
  std::string_view math_header{};
  ReferenceFunction reference;  // null: the outputs of the default config are the reference
  const Template& (*select_template)(const Variant& variant);
  // Null: the library has no built-in CPU kernel for it.
  BuiltinKernel (*builtin)(const Variant& variant) = nullptr;
  // Checks in addition to is_supported(): why the variant is not supported, as in "`gain` needs
  // `magnitude`"; empty if it is. Null: no additional checks.
  std::string_view (*why_unsupported)(const Variant& variant) = nullptr;
  bool is_offered = true;  // in the public interfaces; false if only measurements use it
  int sum_operand = -1;    // the index of the first operand that is a sum, or -1
  // Whether channels may lie along the rows: an input has one element per channel, and there is at
  // most one sum.
  bool has_row_form = false;
  // Whether kernels with the widest vectors may move matrices of those sizes with the tensor memory
  // accelerator (TMA). The widest alignment class then requires 16 bytes for each matrix and each
  // of its rows, including matrices that do not limit vectors. Null: never.
  bool (*moves_boxes)(const Sizes& sizes) = nullptr;
  bool is_one_row = false;  // elementwise for any shape: its tensors are treated as one long row
  // Maximum difference of an output from the reference beyond its rounding, relative to the larger
  // of the element and the root mean square of the output. 0: all bits must be equal. Two configs
  // always give the same bits.
  double tolerance = 0;
  // Whether operands may have any element types, f64 beside others and integers included.
  bool mixes_all_types = false;
  // Distinguishes operations with the same name. Texts contain both: "swiglu@3fa9c2d1e0b7".
  std::string_view version{};
  // By scalar: the values that calls may have, and the one that tuning passes unless it is a size.
  // Empty: any number, and 0.5.
  struct ScalarValues {
    double least = -std::numeric_limits<double>::infinity();
    double most = std::numeric_limits<double>::infinity();
    bool is_integer = false;
    double tuned = 0.5;
  };
  std::span<const ScalarValues> scalar_values{};
  // The hash of the sources of its kernels; empty: they are embedded sources.
  std::string_view sources{};
  // Text from which another process can create the operation; empty: it is in the table.
  std::string_view description{};
  // Texts that the description names by their hashes.
  struct Attachment {
    std::string_view key;
    std::string_view text;
  };
  std::span<const Attachment> attachments{};

  // The sums are the last operands, and are computed together.
  [[nodiscard]] constexpr bool is_sum(std::size_t operand) const {
    return sum_operand >= 0 && operand >= static_cast<std::size_t>(sum_operand);
  }
  [[nodiscard]] constexpr int num_sums() const {
    return sum_operand < 0 ? 0 : static_cast<int>(operands.size()) - sum_operand;
  }
};

// All operations, in the order of operations/*.cc in CMake. Usable during the initialisation of
// other static objects.
std::span<const Operation* const> all_operations();

// The operations of the public interfaces.
std::vector<const Operation*> offered_operations();

// "compose", "swiglu@3fa9c2d1e0b7": the name, and the version if there is one.
std::string full_name(const Operation& operation);

// Looks for a full name in the table, among the added operations and in the operation source. Null
// for an unknown name.
const Operation* find_operation(std::string_view name);

// Called by find_operation() for a full name with a version that was not added. Returns null for an
// unknown name. Set it before other threads call find_operation().
using OperationSource = const Operation* (*)(std::string_view full_name);
void set_operation_source(OperationSource source);

// Adds an operation, which must live as long as the process. If its full name was added before,
// the earlier operation stays and is returned. Thread-safe and lock-free.
const Operation& add_operation(const Operation& added);

// The operation of a name that is written in the source. Ends the process if there is none.
const Operation& operation(std::string_view name);

// An operation with fixed element types and flags: the unit that one template instantiation serves.
struct Variant {
  const Operation* operation = nullptr;
  Broadcast broadcast = Broadcast::kPerColumn;
  std::array<ElementType, kMaxOperands> types{};  // of the operands; unused entries are kFloat32

  [[nodiscard]] std::span<const ElementType> operand_types() const;
  [[nodiscard]] bool has(std::size_t operand) const {
    return types[operand] != ElementType::kAbsent;
  }
  [[nodiscard]] bool has_sum() const;
  friend bool operator==(const Variant&, const Variant&) = default;
};

// "f32", "bf16", "f16", "f64"; those of integer_types.h, such as "i32"; "-" for absent
std::string_view name(ElementType type);
std::optional<ElementType> parse_element_type(std::string_view text);

// The inverse of to_text(variant); nothing for other text.
std::optional<Variant> parse_variant(std::string_view text);

// "compose/bf16,bf16,f32,bf16"; "backward.rows/bf16,bf16,f32,bf16,-,f32" per row and without d_base
std::string to_text(const Variant& variant);

// Whether the operation supports the variant: f64 is mixed with no other type, every other mix is
// allowed, but integers are not, unless the operation mixes all types; only optional operands are
// absent; at least one output is present; only operations with a broadcast operand have a per-row
// form; and why_unsupported() does not object.
bool is_supported(const Variant& variant);

// f64 if any operand is f64, else f32.
ElementType compute_type(const Variant& variant);

// Every supported variant of an operation with all its operands, per column.
std::vector<Variant> all_variants(const Operation& operation);

// The root sources of a kernel of this variant on a kind of device, the formula's first if there is
// one; and (source_identity) the names and content hashes of all files that they include.
std::vector<std::string_view> source_roots(const Variant& variant, DeviceKind kind);
std::string source_identity(const Variant& variant, DeviceKind kind);

// The complete translation unit of one kernel: the includes and a one-line instantiation.
std::string instantiation(const Variant& variant, const Config& config, DeviceKind kind);

}  // namespace dorajit::kernels
