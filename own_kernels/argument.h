// The arguments of an own kernel and their types, as its description has them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel_templates/integer_types.h"
#include "runtime/base/error.h"

namespace dorajit::own_kernels {

struct Argument {
  enum class Kind { kIn, kOut, kInOut, kScalar, kWorkspace, kTensorMap };

  std::string name;
  Kind kind;
  // Of a tensor's elements, "float32" or one of `types`; of a scalar.
  std::string type{};
  // Of a tensor: the names of its dimensions, numbers, and expressions of other dimensions. Of a
  // workspace: the number of its elements, as an expression. Of a tensor map: the sides of its box,
  // as expressions.
  std::vector<std::string> shape{};
  std::vector<std::string> strides{};  // of a tensor, by dimension; empty where it is contiguous
  std::string tensor{};                // of a tensor map
  std::string swizzle{};               // of a tensor map, in bytes, as an expression
  bool is_optional = false;            // a tensor that calls may leave out
  // A scalar's value while configs are tuned. An integer that has one is in no key.
  std::optional<double> tuned{};

  [[nodiscard]] bool is_tensor() const {
    return kind == Kind::kIn || kind == Kind::kOut || kind == Kind::kInOut;
  }
  [[nodiscard]] bool is_scalar() const { return kind == Kind::kScalar; }
  [[nodiscard]] bool is_workspace() const { return kind == Kind::kWorkspace; }
  [[nodiscard]] bool is_tensor_map() const { return kind == Kind::kTensorMap; }
  // The type of a scalar that is an integer, else null.
  [[nodiscard]] const kernels::IntegerType* integer() const;
  // Whether it is an integer that configs may depend on.
  [[nodiscard]] bool is_size() const { return integer() != nullptr && !tuned; }
};

// The values of an integer argument, which doubles hold exactly.
std::pair<double, double> range_of(const kernels::IntegerType& type);

// The number that a dimension always has; nothing for a name.
std::optional<std::int64_t> constant_of(std::string_view dimension);

// "float32" and so on, as frameworks call them, or as headers of CUDA call those of 8 and 16 bits.
std::string_view type_name(kernels::ElementType type, bool is_native_type = false);
// Of all these names.
std::optional<kernels::ElementType> parse_type_name(std::string_view name);

// The largest finite number of a floating-point type; infinity for the others.
double largest_of(kernels::ElementType type);
bool is_native_type(std::string_view name);  // "__half", ...
std::string type_names();                    // "float32, bfloat16, ..."

// An entry of "arguments"; kInvalidArgument.
Result<Argument> read_argument(const nlohmann::ordered_json& json);
nlohmann::ordered_json to_json(const Argument& argument);
std::string shape_text(const Argument& argument);  // "n:stride, m"

// Refusals of a description, of which one names the field.
std::unexpected<Error> refuse_description(std::string_view what);
std::unexpected<Error> refuse_field(std::string_view field, std::string_view what);
// Without the spaces around it.
std::string_view trimmed(std::string_view text);

}  // namespace dorajit::own_kernels
