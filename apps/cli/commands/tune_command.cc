#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <format>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/commands/commands.h"
#include "apps/cli/options/problem_options.h"
#include "apps/cli/options/variant_options.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/views/descriptions.h"
#include "autotune/engine_factory.h"
#include "autotune/sources/tuning_config_source.h"
#include "kernel_templates/config.h"
#include "kernel_templates/sizes.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::cli {
namespace {

struct Tuned {
  launch::Problem problem;
  launch::ConfigAnswer answer;
  std::optional<cache::Winner> winner;  // of the store, afterwards
  std::vector<cache::Trial> trials;
};

Json tuned_json(const Tuned& tuned) {
  Json row = {{"problem", to_text(tuned.problem)},
              {"source", name(tuned.answer.origin)},
              {"config", to_text(tuned.answer.config)},
              {"median_ns", tuned.answer.median_ns},
              {"default_median_ns", tuned.answer.default_median_ns},
              {"trials_measured", tuned.answer.trials},
              {"winner", nullptr},
              {"trials", Json::array()}};
  const kernels::Sizes sizes = tuned.problem.largest_sizes();
  const auto& dimensions = tuned.problem.variant.operation->dimensions;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i].keying >= kernels::Keying::kDerived) continue;
    const bool is_bucketed = dimensions[i].keying == kernels::Keying::kBucketed;
    row[std::string(dimensions[i].name) + (is_bucketed ? "_up_to" : "")] = sizes[i];
  }
  if (tuned.winner) {
    row["winner"] = to_json(*tuned.winner);
    row["trials"] = trials_json(tuned.trials, *tuned.winner);
  }
  return row;
}

std::string tuned_text(const Tuned& tuned) {
  std::string text = std::format("{}\n", launch::to_text(tuned.problem));
  if (tuned.answer.origin == launch::ConfigOrigin::kPinned) {
    return text + std::format("pinned to {}; `dorajit pin --remove` ends that\n",
                              to_text(tuned.answer.config));
  }
  if (tuned.answer.is_only) return text + "it has one config; there is nothing to tune\n";
  if (!tuned.winner) return text + "not tuned; the default config runs\n";
  // A shipped winner comes without its trials.
  if (!tuned.trials.empty()) text += trials_text(tuned.trials, *tuned.winner);
  return text + std::format("winner: {} at {}, {} over the default ({})\n",
                            kernels::to_text(tuned.winner->config),
                            duration_text(tuned.winner->median_ns),
                            ratio_text(tuned.winner->default_median_ns / tuned.winner->median_ns),
                            tuned.answer.origin == launch::ConfigOrigin::kTuned ? "tuned now"
                                                                                : "known already");
}

// Tunes the problem whether or not a winner is known. `statistics` counts what this did.
Result<launch::ConfigAnswer> tune_again(const launch::Problem& problem, device::Device& device,
                                        const autotune::EngineParts& parts,
                                        Statistics& statistics) {
  constexpr std::chrono::seconds kClaimWait{60};
  cache::TuningStore& store = *parts.store;
  const std::string& fingerprint = device.info().fingerprint;
  const std::string key = to_text(problem);
  const auto claim = store.claim(fingerprint, key, kClaimWait);
  if (!claim) {
    return fail(
        StatusCode::kIoError,
        std::format("another process has been tuning {} for {} s; try again when it is done", key,
                    kClaimWait.count()));
  }
  // Over an empty store the fallback chain has no winner, so it tunes.
  const std::shared_ptr<cache::TuningStore> empty = cache::TuningStore::open("");
  autotune::TuningConfigSource source(parts.engine->settings(), empty, statistics);
  launch::ConfigAnswer answer = source.find(problem, device, parts.engine->kernels());
  const auto winner = empty->find_winner(fingerprint, key);
  if (winner) store.record(empty->trials(fingerprint, key), *winner);
  return answer;
}

// The config of a problem on the chosen device. `is_forced`: see tune_again.
Result<launch::ConfigAnswer> tune(const launch::Problem& problem, const ChosenDevice& chosen,
                                  const autotune::EngineParts& parts, Statistics& forced,
                                  bool is_forced) {
  DORAJIT_TRY(launch::check_device(problem.variant, chosen.id.kind));
  if (is_forced) return tune_again(problem, *chosen.device, parts, forced);
  return parts.engine->prepare(problem, chosen.id);
}

// One part of a list of problems, for several processes that tune a part each.
struct Shard {
  std::int64_t index = 1;  // from 1 to count
  std::int64_t count = 1;
};

// "2/8"; all of it for empty text. kInvalidArgument for anything else.
Result<Shard> parse_shard(std::string_view text) {
  constexpr std::int64_t kMaxCount = std::int64_t{1} << 30;
  if (text.empty()) return Shard{};
  if (const auto parts = parse_numbers(text, '/'); parts && parts->size() == 2) {
    const Shard shard{.index = parts->front(), .count = parts->back()};
    if (shard.index >= 1 && shard.index <= shard.count && shard.count <= kMaxCount) return shard;
  }
  return fail(StatusCode::kInvalidArgument,
              std::format("--shard {} is not of the form I/N with I from 1 to N, as in 2/8", text));
}

// The problems of one part, the largest first. The parts of a list are disjoint and together the
// whole list; they do not depend on its order or repetitions. Their lengths differ by one at most,
// and each has its share of the large problems.
std::vector<launch::Problem> part_of(const std::vector<launch::Problem>& problems,
                                     const Shard& shard) {
  const auto less = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  using Keyed = std::pair<double, std::string>;  // elements and name
  std::map<Keyed, launch::Problem, decltype(less)> ordered;
  for (const launch::Problem& problem : problems) {
    ordered.try_emplace(
        {kernels::num_elements(problem.variant, problem.largest_sizes()), to_text(problem)},
        problem);
  }
  std::vector<launch::Problem> part;
  std::int64_t turn = 0;
  for (const auto& [key, problem] : ordered) {
    if (turn++ % shard.count == shard.index - 1) part.push_back(problem);
  }
  return part;
}

struct TuneOptions {
  ProblemOptions problems;
  std::string shard;                // "2/8"; empty: all
  std::optional<double> seconds{};  // per problem; without it as the settings have it
  bool force = false;
};

Result<ExitCode> run_tune(const Invocation& invocation, const TuneOptions& options) {
  // Before a device is opened, so that a wrong command line fails at once.
  DORAJIT_TRY(check_problem_options(options.problems, "tune"));
  DORAJIT_ASSIGN(const Shard shard, parse_shard(options.shard));
  Settings settings = invocation.settings;
  settings.tune_policy = TunePolicy::kFirstUse;  // whatever DORAJIT_TUNE says
  settings.tune_seconds = options.seconds.value_or(settings.tune_seconds);
  const auto parts = autotune::make_engine(settings);
  Engine& engine = *parts.engine;
  cache::TuningStore& store = *parts.store;
  DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(engine, invocation.device));
  const std::string& fingerprint = chosen.device->info().fingerprint;

  Statistics forced;
  std::vector<Tuned> results;
  std::vector<Error> failures;  // of problems that have no kernel; the others are tuned
  std::size_t in_all = 0;
  {
    DORAJIT_ASSIGN(auto problems, make_problems(options.problems, chosen.id.kind, "tune"));
    in_all = problems.size();
    if (!options.shard.empty()) problems = part_of(problems, shard);
    ProgressBar progress(!invocation.json, static_cast<int>(problems.size()));
    for (const launch::Problem& problem : problems) {
      progress.show(std::format("tuning {}", launch::to_text(problem)));
      const Result<launch::ConfigAnswer> found =
          tune(problem, chosen, parts, forced, options.force);
      progress.advance();
      if (!found) {
        failures.push_back(found.error());
        continue;
      }
      const launch::ConfigAnswer& answer = *found;
      Tuned tuned{.problem = problem, .answer = answer, .winner = {}, .trials = {}};
      if (answer.origin == launch::ConfigOrigin::kShippedDatabase) {
        tuned.winner = store.find_overlay_winner(fingerprint, launch::to_text(problem));
      } else if (answer.origin != launch::ConfigOrigin::kDefault &&
                 answer.origin != launch::ConfigOrigin::kPinned) {
        const autotune::TuningSession here(problem, chosen.device->info(),
                                           autotune::space_kind(engine.settings()));
        tuned.winner = store
                           .find_history(fingerprint, here.problem_text, cache::LockWait::kLong,
                                         &here.environment)
                           .winner;
      }
      if (tuned.winner) tuned.trials = trials_of(*tuned.winner, store);
      results.push_back(std::move(tuned));
    }
  }
  if (results.empty() && !failures.empty()) return std::unexpected(failures.front());
  for (const Error& failure : failures) print_error(failure);

  const bool has_tuned = std::ranges::any_of(
      results, [](const Tuned& one) { return one.answer.origin == launch::ConfigOrigin::kTuned; });
  const bool all_kept = !has_tuned || check_winners_are_kept(store);
  const bool all_tuned = std::ranges::all_of(results, [](const Tuned& one) {
    return one.winner || one.answer.is_only || one.answer.origin == launch::ConfigOrigin::kPinned;
  });
  Json fields = {{"device", to_json(chosen.id, chosen.device->info())}};
  Json rows = Json::array();
  std::string text;
  for (const Tuned& tuned : results) {
    rows.push_back(tuned_json(tuned));
    text += tuned_text(tuned) + "\n";
  }
  if (!options.shard.empty()) {
    fields["shard"] = {{"index", shard.index}, {"count", shard.count}, {"problems_in_all", in_all}};
    text += std::format("part {} of {}: {} of {}\n", shard.index, shard.count, results.size(),
                        count_text(static_cast<std::int64_t>(in_all), "problem"));
  }
  fields["problems"] = std::move(rows);
  fields["statistics"] = to_json(engine.statistics());
  fields["statistics"]["trials"] = engine.statistics().trials + forced.trials;
  fields["statistics"]["tuned_problems"] =
      engine.statistics().tuned_problems + forced.tuned_problems;
  fields["database"] = describe(store);
  print_result(invocation.json, "tune", fields, text + where_winners_are(store) + "\n");
  return failures.empty() && all_tuned && all_kept ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace

void declare_tune(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, options] = add_command<TuneOptions>(
      app, commands, "tune", "Find the fastest config of problems and keep it",
      "dorajit tune --shape 512x4096 --shape 4096x14336 --type bf16\n"
      "  dorajit tune --op backward --shape 4096x4096\n"
      "  dorajit tune --from problems.txt --shard 2/8\n"
      "  dorajit tune --kernel swiglu.json --with n=4096x12288",
      run_tune);
  add_problem_options(command, options.problems);
  command.add_option("--shard", options.shard, "Only part I of N of the problems, I from 1 to N")
      ->option_text("I/N");
  add_seconds_option(command, options.seconds);
  command.add_flag("--force", options.force, "Tune again where a winner is known");
}

}  // namespace dorajit::cli
