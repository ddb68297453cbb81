// What stands behind the operation of an own kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel_templates/launch_shape.h"
#include "kernel_templates/template.h"
#include "own_kernels/description.h"
#include "own_kernels/expression.h"

namespace dorajit::own_kernels {

// The device's multiprocessors, by this name in expressions.
inline constexpr std::string_view kProcessors = "multiprocessors";

// Immutable once made, and never moved: the operation's views are of its members.
struct OwnOperation : kernels::Operation {
  // Where a parameter of the CUDA kernel comes from.
  struct Source {
    enum class Kind { kOperand, kSize, kScalar, kWorkspace, kTensorMap } kind;
    std::size_t index;            // of that kind
    kernels::ElementType type{};  // of the parameter that is no operand
  };
  struct Stage {
    std::array<Expression, 3> grid;
    std::array<Expression, 3> block;
    Expression shared_memory;
    std::optional<std::array<Expression, 3>> cluster{};
    bool is_cooperative = false;
  };

  struct TensorMap {
    std::string name;
    std::size_t operand;
    std::vector<Expression> box{};  // by dimension of the tensor
    Expression swizzle{};
  };

  Description given;
  std::string json;  // as to_json() has it
  std::string hash;  // of that and of what is compiled with it
  std::vector<kernels::Operation::Attachment> all_attachments;

  // Of expressions: those of the sizes, then those of the parameters, then kProcessors.
  std::vector<std::string> names;
  std::optional<Expression> constraint;
  std::vector<Stage> stages;  // a launch each
  std::vector<TensorMap> tensor_maps;
  std::optional<Expression> elements_of_workspace;  // over the sizes
  std::int64_t bytes_of_workspace_element = 0;

  std::vector<kernels::Dimension> all_dimensions;
  std::vector<kernels::Operand> all_operands;
  std::vector<std::string_view> all_scalars;
  std::vector<ScalarValues> values_of_scalars;
  std::vector<const char*> scalar_names;  // the same
  std::vector<std::vector<int>> leading;  // dimensions of operands, by operand
  std::vector<std::vector<int>> strides;  // the same; empty for operands without
  // Dimensions that are expressions of others, by their index.
  std::vector<std::pair<std::size_t, Expression>> computed_sizes;
  std::vector<std::string> shape_texts;  // by operand
  std::vector<std::string> refusals;     // of its element type, by operand
  // By operand: the element types that it may have, a bit for each, and the first operand that must
  // have the same one.
  struct ServedTypes {
    unsigned types;
    std::size_t same_as;
  };
  std::vector<ServedTypes> served_types;
  std::vector<std::optional<Expression>> value_limits;  // by operand, over the sizes
  std::vector<Source> sources_of_parameters;

  kernels::Config standard;
  // By parameter, over the sizes: what replaces its value in `standard`.
  std::vector<std::optional<Expression>> standards_of_sizes;
  std::vector<kernels::Config> space;  // whatever the sizes; the default first

  [[nodiscard]] static const OwnOperation& of(const kernels::Variant& variant) {
    return static_cast<const OwnOperation&>(*variant.operation);
  }
};

// The template of all of them.
extern const kernels::Template own_template;

// Of one config; see kernels::Template.
kernels::Program own_program(const kernels::Variant& variant, const kernels::Config& config);

// Whether sources are compiled with kEmbeddedFloat8, which the hash of the kernel then covers.
bool has_float8(const Description& description);
inline constexpr std::string_view kEmbeddedFloat8 = "cuda/own_float8.cuh";

// Finds out whether the parts of a description go together, and makes the operation of it;
// kInvalidArgument by the field. `select_template` and `why_unsupported` are left to the caller.
Result<std::unique_ptr<OwnOperation>> build_operation(Description description);

// Whether the strides of a tensor can be served; kInvalidArgument.
Status check_strides(const Argument& tensor);

// Whether a size is the stride of tensors, and a dimension of none.
bool is_stride(const Description& description, const std::string& name);

// Whether a dimension is written as an expression of others: "k / 2".
bool is_computed_size(std::string_view dimension);

// Reads the dimensions that are expressions, when the operation has its sizes' names, but not yet
// those of its parameters; kInvalidArgument.
Status read_computed_sizes(OwnOperation& own);

// See kernels::Template.
void derive_sizes(const kernels::Variant& variant, int vector_width, kernels::Sizes& sizes);

// The same with `innermost` for strides of dimensions that nothing lies within, in place of 1: no
// element is next to another one.
void space_out(const OwnOperation& own, int vector_width, std::int64_t innermost,
               kernels::Sizes& sizes);

// Lists the configs of the description's parameters; kInvalidArgument.
Status list_space(OwnOperation& own);

// Reads the description's limits, when the operation has its operands and its sizes' names, but not
// yet those of its parameters; kInvalidArgument.
Status read_value_limits(OwnOperation& own);

// Reads the expressions of defaults, launches and the constraint, when the operation has its sizes'
// names, and completes the names; kInvalidArgument.
Status read_expressions(OwnOperation& own);

// Reads a workspace, when the operation has its sizes' names, but not yet those of its parameters;
// kInvalidArgument.
Status read_workspace(OwnOperation& own, const Argument& argument);

// Reads the description's tensor maps, when the operation has its operands and all names;
// kInvalidArgument.
Status read_tensor_maps(OwnOperation& own);

// See kernels::Template.
kernels::TensorBoxes tensor_boxes(const kernels::Variant& variant, const kernels::Config& config,
                                  const kernels::LaunchArguments& arguments, int processors);

// See kernels::Template.
std::int64_t value_limit(const kernels::Variant& variant, std::size_t operand,
                         const kernels::Sizes& sizes);

// Why a description's source has no such entry, or options that are not served; kInvalidArgument.
Status check_program(const Description& description);

}  // namespace dorajit::own_kernels
