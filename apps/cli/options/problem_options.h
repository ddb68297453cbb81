// Options that name problems.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/cli/options/own_kernel_options.h"
#include "apps/cli/options/shapes.h"
#include "apps/cli/options/variant_options.h"
#include "runtime/launch/problem.h"

namespace dorajit::cli {

struct ProblemOptions {
  NamedSizes sizes;                 // of --rows and the like
  std::vector<std::string> shapes;  // a size that they leave out is in `sizes`
  std::string file;                 // of problems, one a line
  VariantOptions variant;
  OwnKernelOptions own_kernel;
};

// Declares --shape, --from, what add_size_options() declares, --op, and what add_variant_options()
// and add_own_kernel_options() declare.
void add_problem_options(CLI::App& app, ProblemOptions& options);

// Declares --seconds, how long one problem may be tuned.
void add_seconds_option(CLI::App& app, std::optional<double>& seconds);

// Whether any problem is given. For commands that take all of the database otherwise.
bool names_problems(const ProblemOptions& options);

// kInvalidArgument when no problem is given or one is wrong; the message names the command. Checks
// what can be checked before a device is opened and a file is read.
Status check_problem_options(const ProblemOptions& options, const std::string& command);

// The keys of the problems on any kind of device, to find their records in a database.
Result<std::set<std::string>> problem_keys(const ProblemOptions& options,
                                           const std::string& command);

// The problems on a device of the kind, without repeats: sizes that share a bucket are one.
// kInvalidArgument when none is given or one is wrong, naming the command or the line of the file.
Result<std::vector<launch::Problem>> make_problems(const ProblemOptions& options,
                                                   kernels::DeviceKind kind,
                                                   const std::string& command);

}  // namespace dorajit::cli
