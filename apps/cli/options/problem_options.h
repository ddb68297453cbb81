// Options that say which problems are meant.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/options/shapes.h"
#include "apps/cli/options/variant_options.h"
#include "runtime/launch/problem.h"

namespace dorajit::cli {

struct ProblemOptions {
  NamedSizes sizes;                 // of --rows and the like
  std::vector<std::string> shapes;  // what they leave out comes from `sizes`
  std::string file;                 // of problems, one a line
  VariantOptions variant;
};

// Declares --shape, --from, what add_size_options() declares, --op and what add_variant_options()
// declares.
void add_problem_options(CLI::App& app, ProblemOptions& options);

// kInvalidArgument when no problem is given or one is wrong, as far as that can be told before a
// device is opened and a file is read; names the command.
Status check_problem_options(const ProblemOptions& options, const std::string& command);

// The problems on a device of the kind, without repeats: sizes that share a bucket are one.
// kInvalidArgument when none is given or one is wrong, naming the command or the line of the file.
Result<std::vector<launch::Problem>> make_problems(const ProblemOptions& options,
                                                   kernels::DeviceKind kind,
                                                   const std::string& command);

}  // namespace dorajit::cli
