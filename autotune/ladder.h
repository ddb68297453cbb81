// The ladder: where the config of a problem may come from, best first (docs/tuning.md).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/tuning_store.h"
#include "kernel_templates/spaces.h"
#include "runtime/device/device.h"
#include "runtime/launch/config_source.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// What was found on one rung.
struct RungLook {
  launch::Rung rung = launch::Rung::kDefault;
  bool answers = false;
  bool is_stale = false;  // measured with another driver or tuner: right, maybe slower
  std::optional<cache::Winner> winner{};  // what stands there, also where it does not answer
  std::string remark{};                   // why it does not answer, or why it is stale
};

struct LadderQuestion {
  const launch::Problem& problem;
  const device::DeviceInfo& device;
  const cache::Environment& environment;  // of a measurement made now
  // Only winners of this very space answer exactly; others would do for anybody else.
  bool only_same_space = false;
  cache::Patience patience = cache::Patience::kShort;
  std::vector<kernels::Config> rejected{};  // answer nowhere
};

// What the databases say of the very problem: the user's, then, unless that answers with what is
// not stale, the shipped ones. best_of() tells which of them to take.
std::vector<RungLook> look_up_exactly(cache::TuningStore& store, const LadderQuestion& question);

// The first that answers and is not stale, else the first that answers, else the last.
const RungLook& best_of(std::span<const RungLook> looks);

// The rungs below, down to the first that answers; the default config always does.
std::vector<RungLook> look_at_neighbours(cache::TuningStore& store, const LadderQuestion& question);

// The answer of a rung that answers.
launch::ConfigAnswer answer_of(const RungLook& look, const LadderQuestion& question);

}  // namespace dorajit::autotune
