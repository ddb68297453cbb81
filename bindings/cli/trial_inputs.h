// Files of trials that were named on the command line.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bindings/cli/output.h"
#include "bindings/cli/progress_bar.h"
#include "cache/trial_files.h"

namespace dorajit::cli {

struct TrialInput {
  std::string path;
  cache::TrialFile file;
};

// All of them, or the error of the first that cannot be read. What is bad in a file is said on
// standard error and passed over; a database that is damaged as a whole is an error.
Result<std::vector<TrialInput>> read_inputs(std::span<const std::string> paths,
                                            ProgressBar& progress);

std::string_view name(cache::TrialFileKind kind);
Json to_json(const TrialInput& input);

}  // namespace dorajit::cli
