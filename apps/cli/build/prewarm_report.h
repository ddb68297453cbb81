// The results of `dorajit prewarm`, as text and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/build/prewarm_plan.h"
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

  // Whether its config was chosen for this very problem.
  [[nodiscard]] bool is_tuned() const;
  [[nodiscard]] bool is_done() const { return is_tuned() || (answer && answer->is_only); }
};

struct PrewarmReport {
  std::vector<PrewarmedTarget> targets;
  std::optional<ChosenDevice> device;   // that problems were tuned on
  std::vector<PrewarmedProblem> tuned;  // on it
  std::int64_t not_kept = 0;            // artifacts that are not in the cache folder
  bool keeps_winners = true;            // winners are in the database
  double seconds = 0;

  // Whether the device is one of that target.
  [[nodiscard]] bool tunes(const PrewarmedTarget& target) const;
  [[nodiscard]] std::int64_t failed() const;    // artifacts and problems
  [[nodiscard]] std::int64_t spilling() const;  // artifacts
  // Whether later processes find all that was asked for.
  [[nodiscard]] bool is_complete() const { return failed() == 0 && not_kept == 0 && keeps_winners; }
};

Json prewarm_json(const PrewarmReport& report, const autotune::EngineParts& parts);
// `with_resources` adds a table of registers, memory and spills of each kernel.
std::string prewarm_text(const PrewarmReport& report, const autotune::EngineParts& parts,
                         bool with_resources);

}  // namespace dorajit::cli
