#include <CLI/CLI.hpp>
#include <format>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/commands/commands.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/problem_options.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/views/descriptions.h"
#include "autotune/engine_factory.h"
#include "autotune/search/tuning_session.h"
#include "autotune/sources/tuning_config_source.h"
#include "kernel_templates/config.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::cli {
namespace {

using autotune::LookupResult;

struct Explained {
  launch::Problem problem;
  kernels::Config config;  // what runs
  std::vector<LookupResult> looks;
  bool is_tuned_first = false;  // by a first call under the policy in force
  // What a locked application runs instead; nothing without DORAJIT_LOCKED.
  std::optional<Result<launch::ConfigAnswer>> locked{};
};

// Whether the config comes from that source.
bool is_used(const LookupResult& look, const Explained& explained) {
  return !explained.locked && &look == &autotune::best_of(explained.looks);
}

std::string winner_text(const cache::Winner& winner, const launch::Problem& problem,
                        const device::DeviceInfo& device, cache::TuningStore& store) {
  std::string text = std::format("{} at {}, {} over the default, {} old",
                                 kernels::to_text(winner.config), duration_text(winner.median_ns),
                                 ratio_text(winner.default_median_ns / winner.median_ns),
                                 age_text(age_of(winner)));
  // A shipped winner comes without its trials.
  if (const std::size_t trials = trials_of(winner, store).size()) {
    text += ", from " + count_text(static_cast<std::int64_t>(trials), "trial");
  }
  if (winner.problem != launch::to_text(problem)) text += std::format(", of {}", winner.problem);
  if (winner.device != device.fingerprint) text += std::format(", on {}", winner.device);
  return text;
}

std::string look_text(const LookupResult& look, const Explained& explained,
                      const device::DeviceInfo& device, cache::TuningStore& store) {
  std::string text;
  if (look.winner) {
    text = winner_text(*look.winner, explained.problem, device, store);
  } else if (look.answers) {
    text = kernels::to_text(explained.config);
  }
  if (!look.remark.empty()) {
    text += std::format("{}{}{}", text.empty() ? "" : " (", look.is_stale ? "stale: " : "",
                        look.remark);
    if (look.winner) text += ')';
  }
  return std::format("  {:<16} {}{}\n", launch::name(look.origin),
                     is_used(look, explained) ? "-> " : "", text);
}

std::string lock_text(const Result<launch::ConfigAnswer>& locked) {
  std::string text;
  if (!locked) {
    text = "none: " + locked.error().message;
  } else {
    text = kernels::to_text(locked->config);
    if (locked->origin != launch::ConfigOrigin::kLocked)
      text += ", as the lock file has nothing that can run";
  }
  return std::format("  {:<16} -> {}\n", "lock file", text);
}

std::string explained_text(const Explained& explained, const device::DeviceInfo& device,
                           cache::TuningStore& store) {
  std::string text = launch::to_text(explained.problem) + "\n";
  if (explained.locked) text += lock_text(*explained.locked);
  for (const LookupResult& look : explained.looks) {
    text += look_text(look, explained, device, store);
  }
  if (explained.is_tuned_first) text += "  the first call tunes it\n";
  return text;
}

Json explained_json(const Explained& explained, cache::TuningStore& store) {
  const LookupResult& best = autotune::best_of(explained.looks);
  const auto& locked = explained.locked;
  Json row = {
      {"problem", launch::to_text(explained.problem)},   {"source", launch::name(best.origin)},
      {"config", kernels::to_text(explained.config)},    {"stale", best.is_stale},
      {"tuned_by_first_call", explained.is_tuned_first}, {"sources", Json::array()}};
  for (const LookupResult& look : explained.looks) {
    Json one = {{"source", launch::name(look.origin)},
                {"answers", look.answers},
                {"used", is_used(look, explained)},
                {"stale", look.is_stale},
                {"remark", look.remark},
                {"winner", nullptr}};
    if (look.winner) {
      one["winner"] = to_json(*look.winner);
      one["winner"]["age_s"] = age_of(*look.winner);
      one["winner"]["trials"] = trials_of(*look.winner, store).size();
    }
    row["sources"].push_back(std::move(one));
  }
  if (locked && *locked) {
    row["source"] = launch::name((*locked)->origin);
    row["config"] = kernels::to_text((*locked)->config);
  }
  row["lock_miss"] = locked && !*locked ? Json((*locked).error().message) : Json();
  return row;
}

Result<ExitCode> run_explain(const Invocation& invocation, const ProblemOptions& wanted) {
  DORAJIT_TRY(check_problem_options(wanted, "explain"));
  const auto parts = autotune::make_engine(invocation.settings);
  cache::TuningStore& store = *parts.store;
  DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(*parts.engine, invocation.device));
  const device::DeviceInfo& device = chosen.device->info();
  DORAJIT_ASSIGN(const auto problems, make_problems(wanted, chosen.id.kind, "explain"));

  Statistics nothing_done;
  const Settings& settings = parts.engine->settings();
  autotune::TuningConfigSource source(settings, parts.store, nothing_done);
  const bool may_tune = settings.tune_policy != TunePolicy::kOff &&
                        settings.tune_policy != TunePolicy::kDaemon && settings.tune_seconds != 0 &&
                        settings.locked_path.empty();
  std::optional<Result<autotune::EngineParts>> locked;
  if (!settings.locked_path.empty()) locked = autotune::make_application_engine(settings);
  std::vector<Explained> all;
  for (const launch::Problem& problem : problems) {
    DORAJIT_TRY(launch::check_device(problem.variant, chosen.id.kind));
    Explained explained{.problem = problem, .config = {}, .looks = source.explain(problem, device)};
    const LookupResult& best = autotune::best_of(explained.looks);
    explained.config = best.pinned ? *best.pinned
                       : best.winner
                           ? best.winner->config
                           : kernels::default_config(problem.variant, device.traits,
                                                     problem.vector_width, problem.largest_sizes());
    const autotune::TuningSession session(problem, device, autotune::space_kind(settings));
    explained.is_tuned_first =
        may_tune && session.has_choice() && (!is_exact(best.origin) || best.is_stale);
    if (locked) {
      explained.locked = locked->and_then([&](const autotune::EngineParts& application) {
        return application.engine->prepare(problem, chosen.id);
      });
    }
    all.push_back(std::move(explained));
  }

  Json rows = Json::array();
  std::string text;
  for (const Explained& one : all) {
    rows.push_back(explained_json(one, store));
    text += explained_text(one, device, store) + "\n";
  }
  return print_result(
      invocation.json, "explain",
      {{"device", to_json(chosen.id, device)}, {"problems", rows}, {"database", describe(store)}},
      text + where_winners_are(store) + "\n");
}

}  // namespace

void declare_explain(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, problems] = add_command<ProblemOptions>(
      app, commands, "explain", "Say which config a problem runs, and where it comes from",
      "dorajit explain --shape 512x4096 --type bf16", run_explain);
  add_problem_options(command, problems);
}

}  // namespace dorajit::cli
