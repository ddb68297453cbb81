// Options that name problems, of the operations and of own kernels.
#pragma once

#include <optional>
#include <set>
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
