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
#include "kernel_templates/launch_shape.h"
#include "kernel_templates/program.h"
#include "kernel_templates/registry.h"
#include "own_kernels/argument.h"
#include "runtime/base/error.h"

namespace dorajit::own_kernels {

struct TypeChoice {
  std::string name;
  std::vector<kernels::ElementType> types;
};

struct Parameter {
  std::string name;
  std::vector<int> values;
  int standard;                     // in the default config, where that is the same for all sizes
  std::string standard_of_sizes{};  // an expression of the sizes; empty: `standard`
};

// An entry of the key: a type or an integer, by name.
struct KeyEntry {
  std::string name;
  bool is_bucketed;
};

// A file that the source includes from a folder.
struct IncludedFile {
  std::string name;  // in the #include
  std::string hash;  // of the text
  std::string text;
};

// A launch of a call. Expressions; see expression.h.
struct Launch {
  std::string entry;
  std::array<std::string, 3> grid;
  std::array<std::string, 3> block;
  std::string shared_memory;
  std::optional<std::array<std::string, 3>> cluster{};
  bool is_cooperative = false;
};

struct Description {
  static constexpr std::size_t kMaxBytes = std::size_t{4} << 20;  // of its JSON
  static constexpr std::size_t kMaxConfigs = 4096;
  static constexpr std::size_t kMaxLaunches = 1 + kernels::kMaxLaterStages;

  std::string name;
  kernels::SourceFile source;  // the name stands in the compiler's messages
  std::vector<kernels::SourceFile> headers;
  // Folders, of which "cuda" is the toolkit's. What is included of them stands in `included`, which
  // takes their place in to_json(), there without its texts.
  std::vector<std::string> include;
  std::vector<IncludedFile> included;
  bool has_native_types = false;  // floats of 8 and 16 bits are CUDA's: __half, ...
  std::vector<std::string> options;
  std::vector<Launch> launches;  // at least one
  std::vector<Argument> arguments;
  std::vector<TypeChoice> types;
  std::vector<Parameter> parameters;
  std::string constraint;                                   // an expression; empty: none
  std::vector<std::pair<std::string, std::string>> limits;  // of an argument's values
  std::vector<std::pair<std::string, kernels::Range>> ranges;
  std::vector<std::string> unaligned;        // tensors that are only aligned to their elements
  std::optional<std::vector<KeyEntry>> key;  // nothing: all, exactly
  double tolerance = 0;                      // 0: no bit may differ
};

// kInvalidArgument for what is no JSON or lacks or misspells a field, by the field. Whether its
// parts go together is for make_kernel() to find out.
Result<Description> parse_description(std::string_view json);

// The same for the same description, however its JSON was written.
std::string to_json(const Description& description);

}  // namespace dorajit::own_kernels
