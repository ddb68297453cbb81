#include "apps/cli/commands/tune_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <format>
#include <optional>

#include "apps/cli/commands/tuning.h"
#include "apps/cli/options/shard.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/text_format.h"
#include "apps/cli/views/descriptions.h"
#include "apps/cli/views/trials_table.h"
#include "kernel_templates/config_text.h"
#include "kernel_templates/sizes.h"

namespace dorajit::cli {
namespace {

struct Tuned {
  launch::Problem problem;
  launch::ConfigAnswer answer;
  std::optional<cache::Winner> winner;  // what the store has now
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
    if (dimensions[i].keying == kernels::Keying::kDerived) continue;
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
  if (!tuned.winner) return text + "not tuned; the default config runs\n";
  // Those of a shipped winner stayed where it was made.
  if (!tuned.trials.empty()) text += trials_text(tuned.trials, *tuned.winner);
  return text + std::format("winner: {} at {}, {} over the default ({})\n",
                            kernels::to_text(tuned.winner->config),
                            duration_text(tuned.winner->median_ns),
                            ratio_text(tuned.winner->default_median_ns / tuned.winner->median_ns),
                            tuned.answer.origin == launch::ConfigOrigin::kTuned ? "tuned now"
                                                                                : "known already");
}

}  // namespace

CLI::App* TuneCommand::declare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tune", "Find the fastest config of problems and keep it");
  add_problem_options(*command, options_);
  add_shard_option(*command, shard_);
  add_seconds_option(*command, seconds_);
  command->add_flag("--force", force_, "Tune again where a winner is known");
  command->footer(
      "Example:\n"
      "  dorajit tune --shape 512x4096 --shape 4096x14336 --type bf16\n"
      "  dorajit tune --op backward --shape 4096x4096\n"
      "  dorajit tune --from problems.txt --shard 2/8");
  return command;
}

Result<ExitCode> TuneCommand::run(const Invocation& invocation) {
  // Before a device is opened, so that a wrong command line is told at once.
  DORAJIT_TRY(check_problem_options(options_, "tune"));
  DORAJIT_ASSIGN(const Shard shard, parse_shard(shard_));
  Settings settings = invocation.settings;
  settings.tune_policy =
      TunePolicy::kFirstUse;  // asked for here and now, whatever DORAJIT_TUNE says
  settings.tune_seconds = seconds_.value_or(settings.tune_seconds);
  const auto parts = autotune::make_engine(settings);
  Engine& engine = *parts.engine;
  cache::TuningStore& store = *parts.store;
  DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(engine, invocation.device));
  const std::string& fingerprint = chosen.device->info().fingerprint;

  Statistics forced;
  std::vector<Tuned> results;
  std::size_t in_all = 0;
  {
    DORAJIT_ASSIGN(auto problems, make_problems(options_, chosen.id.kind, "tune"));
    in_all = problems.size();
    if (!shard_.empty()) problems = part_of(problems, shard);
    ProgressBar progress(!invocation.json, static_cast<int>(problems.size()));
    for (const launch::Problem& problem : problems) {
      progress.show(std::format("tuning {}", launch::to_text(problem)));
      DORAJIT_ASSIGN(const launch::ConfigAnswer answer,
                     force_ ? tune_again(problem, *chosen.device, parts, forced)
                            : engine.prepare(problem, chosen.id));
      Tuned tuned{.problem = problem, .answer = answer, .winner = {}, .trials = {}};
      if (answer.origin == launch::ConfigOrigin::kShippedDatabase) {
        tuned.winner = store.find_overlay_winner(fingerprint, launch::to_text(problem));
      } else if (answer.origin != launch::ConfigOrigin::kDefault) {
        tuned.winner = store.find_winner(fingerprint, launch::to_text(problem));
      }
      if (tuned.winner) tuned.trials = trials_of(*tuned.winner, store);
      results.push_back(std::move(tuned));
      progress.advance();
    }
  }

  const bool all_tuned =
      std::ranges::all_of(results, [](const Tuned& t) { return t.winner.has_value(); });
  if (invocation.json) {
    Json document = begin_document("tune");
    document["device"] = to_json(chosen.id, chosen.device->info());
    if (!shard_.empty()) {
      document["shard"] = {
          {"index", shard.index}, {"count", shard.count}, {"problems_in_all", in_all}};
    }
    document["problems"] = Json::array();
    for (const Tuned& tuned : results) document["problems"].push_back(tuned_json(tuned));
    Json statistics = to_json(engine.statistics());
    statistics["trials"] = engine.statistics().trials + forced.trials;
    statistics["tuned_problems"] = engine.statistics().tuned_problems + forced.tuned_problems;
    document["statistics"] = std::move(statistics);
    document["database"] = describe(store);
    print_document(document);
  } else {
    for (const Tuned& tuned : results) print(tuned_text(tuned) + "\n");
    if (!shard_.empty()) {
      print(std::format("part {} of {}: {} of {}\n", shard.index, shard.count, results.size(),
                        count_text(static_cast<std::int64_t>(in_all), "problem")));
    }
    print(where_winners_are(store) + "\n");
  }
  return all_tuned ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace dorajit::cli
