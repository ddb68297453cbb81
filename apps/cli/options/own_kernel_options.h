// Options that say which problems of an own kernel are meant.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/options/variant_options.h"
#include "runtime/base/error.h"
#include "runtime/launch/problem.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace dorajit::cli {

struct OwnKernelOptions {
  std::string file;               // of a description
  std::vector<std::string> with;  // integers of a problem each
};

// Declares --kernel and --with.
void add_own_kernel_options(CLI::App& app, OwnKernelOptions& options);

// Makes the kernel known. Its problems, one for each --with, which `needs_problem` asks for, of the
// element types of all tensors (--types), or else of the one (--type) where the description leaves
// a choice. kInvalidArgument for a description that cannot be served, or integers that are not its
// own; kIoError for a file that cannot be read.
Result<std::vector<launch::Problem>> own_kernel_problems(const OwnKernelOptions& options,
                                                         const VariantOptions& types,
                                                         bool needs_problem = true);

// The problem of a key; kInvalidArgument names the kernel whose description is missing here.
Result<launch::Problem> parse_key(std::string_view key);

}  // namespace dorajit::cli
