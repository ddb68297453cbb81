// Files of trials that were named on the command line.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "cache/database/trial_files.h"

namespace CLI {
class App;
}

namespace dorajit::cli {

struct TrialInput {
  std::string path;
  cache::TrialFile file;
};

// --partial, for read_inputs().
void add_partial_option(CLI::App& app, bool& partial);

// All of them, or the error of the first that cannot be read. What is bad in a file is said on
// standard error and passed over; a file that is damaged as a whole is an error, but with `partial`
// the trials that are left of a file that was cut are taken.
Result<std::vector<TrialInput>> read_inputs(std::span<const std::string> paths, bool partial,
                                            ProgressBar& progress);

std::string_view name(cache::TrialFileKind kind);
Json to_json(const TrialInput& input);

}  // namespace dorajit::cli
