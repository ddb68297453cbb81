// The sizes of a problem as they stand on a command line, by the dimensions of its operation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace dorajit::cli {

// By the name of a dimension; 0 where the command line says nothing.
using NamedSizes = std::map<std::string, std::int64_t, std::less<>>;

// Declares --rows, --cols and so on: one for each dimension that an operation of the table has.
void add_size_options(CLI::App& app, NamedSizes& sizes);

bool names_any(const NamedSizes& sizes);

// "ROWSxCOLS", the form of --shape.
std::string shape_form(const kernels::Operation& operation);

// "--rows R --cols C"
std::string size_options_text(const kernels::Operation& operation);

// The numbers of "4096x14336"; kInvalidArgument for anything else, naming the operation's form.
Result<std::vector<std::int64_t>> parse_shape(std::string_view text,
                                              const kernels::Operation& operation);

// What `listed` gives the first dimensions, in their order, and `named` the others.
// kInvalidArgument unless each has one size, which is positive. launch::check_size() has the upper
// bound.
Result<kernels::Sizes> make_sizes(const kernels::Operation& operation,
                                  std::span<const std::int64_t> listed, const NamedSizes& named);

}  // namespace dorajit::cli
