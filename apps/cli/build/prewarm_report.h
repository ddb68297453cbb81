// What `dorajit prewarm` did, as text and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/build/artifact_builds.h"
#include "apps/cli/build/prewarm_problems.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/output.h"
#include "autotune/engine_factory.h"
#include "runtime/launch/config_source.h"

namespace dorajit::cli {

// The artifacts of one target.
struct PrewarmedTarget {
  compile::Target target;
  std::vector<launch::Problem> problems;
  std::vector<ArtifactBuild> builds;
  std::int64_t compiled = 0;
  std::int64_t from_cache = 0;

  [[nodiscard]] std::int64_t failed() const;
  [[nodiscard]] std::int64_t code_bytes() const;
};

struct PrewarmedProblem {
  launch::Problem problem;
  Result<launch::ConfigAnswer> answer;

  // Whether a winner of this very problem is known now.
  [[nodiscard]] bool is_tuned() const;
};

struct PrewarmReport {
  std::vector<PrewarmedTarget> targets;
  std::optional<ChosenDevice> device;   // on which problems were tuned
  std::vector<PrewarmedProblem> tuned;  // there
  std::int64_t not_kept = 0;            // artifacts that were made and are not in the cache folder
  bool keeps_winners = true;            // what was tuned is in the database
  double seconds = 0;

  // Whether the device is one of that target.
  [[nodiscard]] bool tunes(const PrewarmedTarget& target) const;
  [[nodiscard]] std::int64_t failed() const;  // artifacts and problems
  // Whether all that was asked for is there for those who come later.
  [[nodiscard]] bool is_whole() const { return failed() == 0 && not_kept == 0 && keeps_winners; }
};

// The model and its layers; null where there is none.
Json model_json(const PrewarmProblems& problems);

Json prewarm_json(const PrewarmReport& report, const PrewarmProblems& problems,
                  const autotune::EngineParts& parts);
std::string prewarm_text(const PrewarmReport& report, const autotune::EngineParts& parts);

// The layers as comments, then the problems, as `--from` reads them.
std::string problem_file_text(const PrewarmProblems& problems,
                              const std::vector<launch::Problem>& listed);

}  // namespace dorajit::cli
