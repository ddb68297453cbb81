#include "autotune/sources/fallback_chain.h"

#include <algorithm>
#include <format>

#include "autotune/search/quarantine.h"
#include "autotune/sources/nearest_winner.h"
#include "kernel_templates/config_limits.h"
#include "kernel_templates/config_text.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

using cache::Environment;
using cache::Winner;
using launch::ConfigOrigin;

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
