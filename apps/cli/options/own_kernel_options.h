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

// The problems of the kernel, one for each --with, of the element types of all tensors (--types),
// or else of the one (--type) where the description leaves a choice. kInvalidArgument for a
// description that cannot be served, or integers that are not its own; kIoError for a file that
// cannot be read.
Result<std::vector<launch::Problem>> own_kernel_problems(const OwnKernelOptions& options,
                                                         const VariantOptions& types);

}  // namespace dorajit::cli
