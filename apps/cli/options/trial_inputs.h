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

// All files, or the error of the first that cannot be read. Bad lines and rows are named on
// standard error and skipped. A damaged file is an error; with `partial`, the trials that are left
// of a file of text that was cut are taken.
Result<std::vector<TrialInput>> read_inputs(std::span<const std::string> paths, bool partial,
                                            ProgressBar& progress);

Json to_json(const TrialInput& input);
Json to_json(std::span<const TrialInput> inputs);

}  // namespace dorajit::cli
