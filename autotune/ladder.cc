#include "autotune/ladder.h"

#include <algorithm>
#include <format>
#include <utility>

#include "autotune/nearest_winner.h"
#include "autotune/quarantine.h"
#include "kernel_templates/config_limits.h"
#include "kernel_templates/config_text.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

using cache::Environment;
using cache::Winner;
using launch::Rung;

// What changed since the winner was measured, or nothing.
std::string what_is_stale(const Environment& then, const Environment& now) {
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

RungLook look_of(Rung rung, const Winner* winner, const LadderQuestion& question,
                 std::string_view nothing) {
  RungLook look{.rung = rung};
  if (winner == nullptr) {
    look.remark = nothing;
    return look;
  }
  look.winner = *winner;
  look.answers = true;
  look.remark = what_is_stale(winner->environment, question.environment);
  look.is_stale = !look.remark.empty();
  return look;
}

// Of the problem itself.
RungLook exact_look(Rung rung, const std::optional<Winner>& winner, const LadderQuestion& question,
                    std::string_view nothing) {
  RungLook look = look_of(rung, winner ? &*winner : nullptr, question, nothing);
  if (!look.answers) return look;
  // Other templates are other kernels: their winner says nothing certain about these.
  if (winner->environment.templates != question.environment.templates) {
    look.answers = false;
    look.remark = "tuned for other kernels, of another version";
  } else if (question.only_same_space && winner->environment.space != question.environment.space) {
    look.answers = false;
    look.remark = "tuned over another space of configs";
  } else if (const std::string why =
                 kernels::why_config_is_invalid(question.problem.variant, question.device.traits,
                                                question.problem.vector_width, winner->config);
             !why.empty()) {
    look.answers = false;
    look.remark = std::format("its config {} is invalid: {}", to_text(winner->config), why);
    const std::string where =
        std::format("the winner of {} in the {}", to_text(question.problem), launch::name(rung));
    log_once(LogLevel::kWarning, where, std::format("{} is not used: {}", where, look.remark));
  }
  return look;
}

bool is_quarantined(const Winner& winner, cache::TuningStore& store,
                    const LadderQuestion& question) {
  return std::ranges::contains(
      quarantined_configs(store, question.problem.variant, question.device), winner.config);
}

}  // namespace

std::vector<RungLook> look_up_exactly(cache::TuningStore& store, const LadderQuestion& question) {
  const std::string problem = to_text(question.problem);
  const std::string& device = question.device.fingerprint;
  std::vector<RungLook> looks;
  const auto look = [&](Rung rung, const std::optional<Winner>& winner, std::string_view nothing) {
    RungLook& found = looks.emplace_back(exact_look(rung, winner, question, nothing));
    // It may have been verified on another machine, or found out at another shape.
    if (found.answers && is_quarantined(*found.winner, store, question)) {
      found.answers = false;
      found.remark = "its config has misbehaved on this device";
    } else if (found.answers && std::ranges::contains(question.rejected, found.winner->config)) {
      found.answers = false;
      found.remark = "its config could not be verified on this device";
    }
    return found.answers && !found.is_stale;
  };
  if (look(Rung::kUserDatabase, store.find_winner(device, problem, question.patience),
           "it was never tuned")) {
    return looks;
  }
  look(Rung::kShippedDatabase, store.find_overlay_winner(device, problem), "it is in none");
  return looks;
}

const RungLook& best_of(std::span<const RungLook> looks) {
  const auto fresh = std::ranges::find_if(
      looks, [](const RungLook& look) { return look.answers && !look.is_stale; });
  if (fresh != looks.end()) return *fresh;
  const auto any = std::ranges::find_if(looks, &RungLook::answers);
  return any != looks.end() ? *any : looks.back();
}

std::vector<RungLook> look_at_neighbours(cache::TuningStore& store,
                                         const LadderQuestion& question) {
  const launch::Problem& problem = question.problem;
  std::vector<Winner> winners = store.winners_of_variant(to_text(problem.variant));
  const auto quarantined = quarantined_configs(store, problem.variant, question.device);
  std::erase_if(winners, [&](const Winner& w) {
    return std::ranges::contains(quarantined, w.config) ||
           std::ranges::contains(question.rejected, w.config);
  });
  const Seeker seeker{.problem = problem,
                      .device = question.device.fingerprint,
                      .templates = question.environment.templates,
                      .traits = question.device.traits};
  std::vector<RungLook> looks;
  looks.push_back(look_of(Rung::kNearestShape, nearest_shape(winners, seeker), question,
                          "no other shape was tuned"));
  if (looks.back().answers) return looks;
  looks.push_back(look_of(Rung::kNearestDevice, nearest_device(winners, seeker), question,
                          "it was tuned on no other device"));
  if (looks.back().answers) return looks;
  looks.push_back({.rung = Rung::kDefault, .answers = true});
  return looks;
}

launch::ConfigAnswer answer_of(const RungLook& look, const LadderQuestion& question) {
  if (!look.winner) {
    return {.config = kernels::default_config(question.problem.variant, question.device.traits,
                                              question.problem.vector_width),
            .rung = look.rung};
  }
  launch::ConfigAnswer answer{.config = look.winner->config, .rung = look.rung};
  // Times of another shape or device are not this problem's.
  if (look.rung == Rung::kUserDatabase || look.rung == Rung::kShippedDatabase) {
    answer.median_ns = look.winner->median_ns;
    answer.default_median_ns = look.winner->default_median_ns;
  }
  return answer;
}

}  // namespace dorajit::autotune
