#include <CLI/CLI.hpp>
#include <algorithm>
#include <format>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/commands/commands.h"
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

struct ImportOptions {
  std::vector<std::string> files;
  bool rebuild = false;
  bool partial = false;
};

Result<ExitCode> run_import(const Invocation& invocation, const ImportOptions& options) {
  if (options.files.empty() && !options.rebuild) {
    return fail(StatusCode::kInvalidArgument,
                "import needs a FILE of `dorajit export`, a tuning database, or --rebuild");
  }
  ProgressBar progress(!invocation.json);
  DORAJIT_ASSIGN(const std::vector<TrialInput> inputs,
                 read_inputs(options.files, options.partial, progress));
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
  if (options.rebuild) {
    winners = store.rebuild_winners();
    if (!winners) return nothing_written("the winners are unchanged", store);
  }
  Json document = {{"database", store.location()},
                   {"files", to_json(inputs)},
                   {"added", counts->added},
                   {"known", counts->known},
                   {"winners_changed", counts->winners}};
  std::string text;
  if (!inputs.empty()) {
    text += std::format("{} added to {}, {} known before; {} changed\n",
                        count_text(counts->added, "trial"), store.location(), counts->known,
                        count_text(counts->winners, "winner"));
  }
  if (winners) {
    document["winners"] = *winners;
    text += std::format("{} derived from {} in {}\n", count_text(*winners, "winner"),
                        count_text(store.trial_count(), "trial"), store.location());
  }
  return print_result(invocation.json, "import", document, text);
}

}  // namespace

void declare_import(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, options] = add_command<ImportOptions>(
      app, commands, "import", "Add trials of other machines to the tuning database",
      "dorajit import h200.jsonl other-host/tuning.db\n"
      "  dorajit import --rebuild",
      run_import);
  command.add_option("FILE", options.files, "Files of `dorajit export`, or tuning databases");
  command.add_flag("--rebuild", options.rebuild,
                   "Derive all winners again, not only those of problems with new trials");
  add_partial_option(command, options.partial);
}

}  // namespace dorajit::cli
