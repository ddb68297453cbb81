#include "apps/cli/commands/import_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <format>
#include <iterator>
#include <optional>

#include "apps/cli/options/trial_inputs.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/text_format.h"
#include "autotune/engine_factory.h"

namespace dorajit::cli {
namespace {

std::unexpected<Error> nothing_written(std::string_view what, cache::TuningStore& store) {
  return fail(StatusCode::kIoError,
              std::format("{}, since the tuning database cannot be written: {}", what,
                          store.reason_not_persistent()));
}

}  // namespace

CLI::App* ImportCommand::declare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("import", "Add what other machines measured to the tuning database");
  command->add_option("FILE", files_, "Files of `dorajit export`, or tuning databases");
  command->add_flag("--rebuild", rebuild_,
                    "Derive all winners anew, not only those of problems with new trials");
  add_partial_option(*command, partial_);
  command->footer(
      "Example:\n"
      "  dorajit import h200.jsonl other-host/tuning.db\n"
      "  dorajit import --rebuild");
  return command;
}

Result<ExitCode> ImportCommand::run(const Invocation& invocation) {
  if (files_.empty() && !rebuild_) {
    return fail(StatusCode::kInvalidArgument,
                "FILE is required, one of `dorajit export` or a tuning database; see `dorajit "
                "import --help`");
  }
  ProgressBar progress(!invocation.json);
  DORAJIT_ASSIGN(const std::vector<TrialInput> inputs, read_inputs(files_, partial_, progress));
  std::vector<cache::Trial> trials;
  for (const TrialInput& input : inputs) {
    std::ranges::copy(input.file.trials, std::back_inserter(trials));
  }
  const auto parts = autotune::make_engine(invocation.settings);
  cache::TuningStore& store = *parts.store;
  const auto counts = store.import_trials(trials, progress.follow("adding to the database"));
  progress.hide();
  if (!counts) return nothing_written("nothing was imported", store);
  std::optional<std::int64_t> winners;
  if (rebuild_) {
    winners = store.rebuild_winners();
    if (!winners) return nothing_written("the winners are as they were", store);
  }
  if (invocation.json) {
    Json document = begin_document("import");
    document["database"] = store.location();
    document["files"] = Json::array();
    for (const TrialInput& input : inputs) document["files"].push_back(to_json(input));
    document["added"] = counts->added;
    document["known"] = counts->known;
    document["winners_changed"] = counts->winners;
    if (winners) document["winners"] = *winners;
    print_document(document);
    return ExitCode::kOk;
  }
  if (!inputs.empty()) {
    print(std::format("{} added to {}, {} known before; {} changed\n",
                      count_text(counts->added, "trial"), store.location(), counts->known,
                      count_text(counts->winners, "winner")));
  }
  if (winners) {
    print(std::format("{} derived from {} in {}\n", count_text(*winners, "winner"),
                      count_text(store.trial_count(), "trial"), store.location()));
  }
  return ExitCode::kOk;
}

}  // namespace dorajit::cli
