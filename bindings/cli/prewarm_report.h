// What `dorajit prewarm` did, as text and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/cli/artifact_builds.h"
#include "bindings/cli/device_choice.h"
#include "bindings/cli/output.h"
#include "bindings/cli/prewarm_problems.h"
#include "bindings/composition.h"
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
                  const bindings::Composition& composition);
std::string prewarm_text(const PrewarmReport& report, const bindings::Composition& composition);

// The layers as comments, then the problems, as `--from` reads them.
std::string problem_file_text(const PrewarmProblems& problems,
                              const std::vector<launch::Problem>& listed);

}  // namespace dorajit::cli
