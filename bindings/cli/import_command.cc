#include "bindings/cli/import_command.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <format>
#include <memory>
#include <utility>

#include "bindings/cli/output.h"
#include "bindings/cli/text_format.h"
#include "bindings/cli/trial_inputs.h"
#include "bindings/composition.h"

namespace dorajit::cli {

CLI::App* ImportCommand::declare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("import", "Add what other machines measured to the tuning database");
  command->add_option("FILE", files_, "Files of `dorajit export`, or tuning databases")->required();
  command->add_option("--into", folder_, "Make a database to ship, as FOLDER/tuning.db, instead")
      ->option_text("FOLDER");
  command->footer("Example:\n  dorajit import h200.jsonl other-host/tuning.db");
  return command;
}

Result<ExitCode> ImportCommand::run(const Invocation& invocation) {
  DORAJIT_ASSIGN(const std::vector<TrialInput> inputs, read_inputs(files_));
  const std::shared_ptr<cache::TuningStore> opened =
      folder_.empty() ? bindings::compose_engine(invocation.settings).store
                      : cache::TuningStore::open(std::filesystem::absolute(folder_).string());
  cache::TuningStore& store = *opened;

  std::vector<cache::Trial> trials;
  for (const TrialInput& input : inputs) {
    trials.insert(trials.end(), input.file.trials.begin(), input.file.trials.end());
  }
  const cache::MergeCounts counts = store.merge(trials);
  if (!store.persistent()) {
    return fail(StatusCode::kIoError, std::format("nothing was imported, since nothing can be "
                                                  "kept: {}",
                                                  store.reason_not_persistent()));
  }
  if (invocation.json) {
    Json document = begin_document("import");
    document["database"] = store.location();
    document["files"] = Json::array();
    for (const TrialInput& input : inputs) document["files"].push_back(to_json(input));
    document["added"] = counts.added;
    document["known"] = counts.known;
    document["winners_changed"] = counts.winners;
    print_document(document);
  } else {
    print(std::format("{} added to {}, {} known before; {} changed\n",
                      count_text(counts.added, "trial"), store.location(), counts.known,
                      count_text(counts.winners, "winner")));
  }
  return ExitCode::kOk;
}

}  // namespace dorajit::cli
