#include "autotune/sources/fallback_chain.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <limits>
#include <string>

#include "autotune/search/tuning_session.h"
#include "cache/records/tuning_records.h"
#include "kernel_templates/config.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

using cache::Environment;
using cache::Winner;
using launch::ConfigOrigin;

constexpr double kPenaltyPerHalvedVector = 2;

bool can_answer(const Winner& winner, const Seeker& seeker) {
  return winner.environment.templates == seeker.templates &&
         kernels::why_config_is_invalid(seeker.problem.variant, seeker.traits,
                                        seeker.problem.vector_width, seeker.problem.largest_sizes(),
                                        winner.config)
             .empty();
}

// Distance in factors of two.
double distance(const launch::Problem& problem, const launch::Problem& other) {
  const auto factors = [](auto a, auto b) {
    return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
  };
  double sum = kPenaltyPerHalvedVector * factors(problem.vector_width, other.vector_width);
  const kernels::Sizes sizes = problem.largest_sizes();
  const kernels::Sizes others = other.largest_sizes();
  const auto& dimensions = problem.variant.operation->dimensions;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i].keying >= kernels::Keying::kDerived) continue;
    sum += factors(std::max<std::int64_t>(sizes[i], 1), std::max<std::int64_t>(others[i], 1));
  }
  return sum;
}

std::string_view kind_of(std::string_view fingerprint) {
  return fingerprint.substr(0, fingerprint.find('/'));
}

// How many parts of two fingerprints are equal, compared position by position.
int parts_in_common(std::string_view a, std::string_view b) {
  int common = 0;
  while (!a.empty() && !b.empty()) {
    const std::size_t a_end = std::min(a.find('/'), a.size());
    const std::size_t b_end = std::min(b.find('/'), b.size());
    common += a.substr(0, a_end) == b.substr(0, b_end) ? 1 : 0;
    a.remove_prefix(std::min(a_end + 1, a.size()));
    b.remove_prefix(std::min(b_end + 1, b.size()));
  }
  return common;
}

// The differences that make the winner stale; empty if there are none.
std::string staleness(const Environment& then, const Environment& now) {
  std::string text;
  const auto compare = [&](std::string_view what, const std::string& a, const std::string& b) {
    if (a == b) return;
    text += std::format("{}{} {} then, {} now", text.empty() ? "" : "; ", what, a, b);
  };
  compare("driver", then.driver, now.driver);
  compare("tuner", then.tuner, now.tuner);
  compare("measurement", then.policy, now.policy);
  return text;
}

LookupResult look_of(ConfigOrigin origin, const Winner* winner, const TuningSession& session,
                     std::string_view nothing) {
  LookupResult look{.origin = origin};
  if (winner == nullptr) {
    look.remark = nothing;
    return look;
  }
  look.winner = *winner;
  look.answers = true;
  look.remark = staleness(winner->environment, session.environment);
  look.is_stale = !look.remark.empty();
  return look;
}

// Takes back the answer of a source whose config cannot run here, and warns of it once.
void check_config(LookupResult& look, const kernels::Config& config, const TuningSession& session) {
  const std::string why = kernels::why_config_is_invalid(
      session.problem.variant, session.device.traits, session.problem.vector_width,
      session.problem.largest_sizes(), config);
  if (why.empty()) return;
  look.answers = false;
  look.remark = std::format("its config {} is invalid: {}", to_text(config), why);
  const std::string where = look.pinned
                                ? std::format("the pinned config of {}", session.problem_text)
                                : std::format("the winner of {} in the {}", session.problem_text,
                                              launch::name(look.origin));
  log_once(LogLevel::kWarning, where, std::format("{} is not used: {}", where, look.remark));
}

// The lookup of the problem itself. In the comprehensive space, only winners of that space are
// used: a winner of the slim space serves only users who did not ask for a comprehensive search.
LookupResult exact_look(ConfigOrigin origin, const std::optional<Winner>& winner,
                        const TuningSession& session, std::string_view nothing) {
  LookupResult look = look_of(origin, winner ? &*winner : nullptr, session, nothing);
  if (!look.answers) return look;
  // Other templates are other kernels, so their winners are not used.
  if (winner->environment.templates != session.environment.templates) {
    look.answers = false;
    look.remark = "tuned for kernels of another version";
  } else if (session.space_kind == kernels::SpaceKind::kComprehensive &&
             winner->environment.space != session.environment.space) {
    look.answers = false;
    look.remark = "tuned over another space of configs";
  } else {
    check_config(look, winner->config, session);
  }
  return look;
}

}  // namespace

const Winner* nearest_shape(std::span<const Winner> winners, const Seeker& seeker) {
  const Winner* nearest = nullptr;
  double min_distance = std::numeric_limits<double>::infinity();
  for (const Winner& winner : winners) {
    if (!cache::is_same_model(winner.device, seeker.device) || !can_answer(winner, seeker))
      continue;
    const auto problem = launch::parse_problem(winner.problem);
    if (!problem || problem->variant != seeker.problem.variant) continue;
    const double away = distance(seeker.problem, *problem) +
                        kernels::misfit(problem->variant, seeker.traits,
                                        seeker.problem.largest_sizes(), winner.config);
    if (away < min_distance) {
      min_distance = away;
      nearest = &winner;
    }
  }
  return nearest;
}

const Winner* nearest_device(std::span<const Winner> winners, const Seeker& seeker) {
  const std::string wanted = to_text(seeker.problem);
  const Winner* nearest = nullptr;
  int max_common = -1;
  for (const Winner& winner : winners) {
    if (winner.problem != wanted || winner.device == seeker.device ||
        kind_of(winner.device) != kind_of(seeker.device) || !can_answer(winner, seeker)) {
      continue;
    }
    const int common = parts_in_common(winner.device, seeker.device);
    if (common > max_common) {
      max_common = common;
      nearest = &winner;
    }
  }
  return nearest;
}

std::vector<LookupResult> find_exact(cache::TuningStore& store, TuningSession& session) {
  const std::string& problem = session.problem_text;
  const std::string& device = session.device.fingerprint;
  if (!session.history) {
    session.history = store.find_history(device, problem, session.lock_wait, &session.environment);
    // If the database cannot be read, the configs quarantined so far stay quarantined.
    session.quarantine(quarantined_configs(session.history->bad_trials, session));
  }
  std::vector<LookupResult> looks;
  // The user's own statement: it is neither verified nor quarantined.
  if (const auto pin = store.pins().find(device, problem)) {
    LookupResult& found = looks.emplace_back(
        LookupResult{.origin = ConfigOrigin::kPinned, .answers = true, .pinned = pin->config});
    check_config(found, pin->config, session);
    if (found.answers) return looks;
  }
  const auto look = [&](ConfigOrigin origin, const std::optional<Winner>& winner,
                        std::string_view nothing) {
    LookupResult& found = looks.emplace_back(exact_look(origin, winner, session, nothing));
    // The config may have been verified on another machine, or rejected for another shape.
    if (found.answers && std::ranges::contains(session.quarantined, found.winner->config)) {
      found.answers = false;
      found.remark = "its config has misbehaved on this device";
    } else if (found.answers && std::ranges::contains(session.rejected, found.winner->config)) {
      found.answers = false;
      found.remark = "its config could not be verified on this device";
    }
    return found.answers && !found.is_stale;
  };
  if (look(ConfigOrigin::kUserDatabase, session.history->winner, "it was never tuned")) {
    return looks;
  }
  look(ConfigOrigin::kShippedDatabase, store.find_overlay_winner(device, problem),
       "it has no winner");
  return looks;
}

const LookupResult& best_of(std::span<const LookupResult> looks) {
  const auto fresh = std::ranges::find_if(
      looks, [](const LookupResult& look) { return look.answers && !look.is_stale; });
  if (fresh != looks.end()) return *fresh;
  const auto any = std::ranges::find_if(looks, &LookupResult::answers);
  return any != looks.end() ? *any : looks.back();
}

std::vector<LookupResult> find_nearest(cache::TuningStore& store, TuningSession& session) {
  const launch::Problem& problem = session.problem;
  std::vector<Winner> winners = store.winners_of_variant(to_text(problem.variant));
  std::erase_if(winners, [&](const Winner& w) {
    return std::ranges::contains(session.quarantined, w.config) ||
           std::ranges::contains(session.rejected, w.config);
  });
  const Seeker seeker{.problem = problem,
                      .device = session.device.fingerprint,
                      .templates = session.environment.templates,
                      .traits = session.device.traits};
  std::vector<LookupResult> looks;
  looks.push_back(look_of(ConfigOrigin::kNearestShape, nearest_shape(winners, seeker), session,
                          "no other shape was tuned"));
  if (looks.back().answers) return looks;
  looks.push_back(look_of(ConfigOrigin::kNearestDevice, nearest_device(winners, seeker), session,
                          "it was tuned on no other device"));
  if (looks.back().answers) return looks;
  looks.push_back({.origin = ConfigOrigin::kDefault, .answers = true});
  return looks;
}

launch::ConfigAnswer answer_of(const LookupResult& look, const TuningSession& session) {
  if (look.pinned) return {.config = *look.pinned, .origin = look.origin};
  if (!look.winner) {
    return {.config = session.default_config(), .origin = look.origin};
  }
  launch::ConfigAnswer answer{.config = look.winner->config, .origin = look.origin};
  // Times of another shape or device do not apply to this problem.
  if (look.origin == ConfigOrigin::kUserDatabase || look.origin == ConfigOrigin::kShippedDatabase) {
    answer.median_ns = look.winner->median_ns;
    answer.default_median_ns = look.winner->default_median_ns;
  }
  return answer;
}

}  // namespace dorajit::autotune
