// What a user says of an own kernel: data alone, as JSON (docs/own_kernel_format.md).
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel_templates/element_type.h"
#include "kernel_templates/program.h"
#include "runtime/base/error.h"

namespace dorajit::own_kernels {

struct Argument {
  enum class Kind { kIn, kOut, kInOut, kInt32, kInt64, kFloat32, kFloat64 };

  std::string name;
  Kind kind;
  std::string type{};                // of a tensor's elements: "float32", or one of `types`
  std::vector<std::string> shape{};  // of a tensor: the names of its dimensions

  [[nodiscard]] bool is_tensor() const { return kind <= Kind::kInOut; }
  [[nodiscard]] bool is_integer() const { return kind == Kind::kInt32 || kind == Kind::kInt64; }
};

struct TypeChoice {
  std::string name;
  std::vector<kernels::ElementType> types;
};

struct Parameter {
  std::string name;
  std::vector<int> values;
  int standard;  // in the default config
};

// An entry of the key: a type or an integer, by name.
struct KeyEntry {
  std::string name;
  bool is_bucketed;
};

struct Description {
  static constexpr std::size_t kMaxBytes = std::size_t{4} << 20;  // of its JSON
  static constexpr std::size_t kMaxConfigs = 4096;

  std::string name;
  kernels::SourceFile source;  // the name stands in the compiler's messages
  std::vector<kernels::SourceFile> headers;
  std::vector<std::string> options;
  std::string entry;
  std::vector<Argument> arguments;
  std::vector<TypeChoice> types;
  std::vector<Parameter> parameters;
  // Expressions; see expression.h.
  std::string constraint;  // empty: none
  std::array<std::string, 3> grid;
  std::array<std::string, 3> block;
  std::string shared_memory;
  std::vector<std::pair<std::string, std::string>> limits;  // of an argument's values
  std::optional<std::vector<KeyEntry>> key;                 // nothing: all, exactly
  double tolerance = 0;                                     // 0: no bit may differ
};

// kInvalidArgument for what is no JSON or lacks or misspells a field, by the field. Whether its
// parts go together is for make_kernel() to find out.
Result<Description> parse_description(std::string_view json);

// The same for the same description, however its JSON was written.
std::string to_json(const Description& description);

// "float32" and so on, as frameworks call them.
std::string_view type_name(kernels::ElementType type);
std::optional<kernels::ElementType> parse_type_name(std::string_view name);
std::string type_names();  // "float32, bfloat16, ..."

}  // namespace dorajit::own_kernels
