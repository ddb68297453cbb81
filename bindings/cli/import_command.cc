#include "bindings/cli/import_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <format>
#include <memory>
#include <utility>

#include "bindings/cli/output.h"
#include "bindings/cli/progress_bar.h"
#include "bindings/cli/table.h"
#include "bindings/cli/text_format.h"
#include "bindings/cli/trial_inputs.h"
#include "bindings/composition.h"

namespace dorajit::cli {
namespace {

std::unexpected<Error> nothing_kept(std::string_view what, cache::TuningStore& store) {
  return fail(StatusCode::kIoError, std::format("nothing was {}, since nothing can be kept: {}",
                                                what, store.reason_not_persistent()));
}

std::vector<cache::Trial> all_trials(const std::vector<TrialInput>& inputs) {
  std::vector<cache::Trial> trials;
  for (const TrialInput& input : inputs) {
    trials.insert(trials.end(), input.file.trials.begin(), input.file.trials.end());
  }
  return trials;
}

std::string names_of(const std::vector<TrialInput>& inputs) {
  std::string names;
  for (const TrialInput& input : inputs) names += (names.empty() ? "" : ", ") + input.path;
  return names;
}

void print_counts(const Invocation& invocation, const std::vector<TrialInput>& inputs,
                  const cache::ImportCounts& counts, cache::TuningStore& store) {
  const cache::MergeCounts& trials = counts.trials;
  if (invocation.json) {
    Json document = begin_document("import");
    document["database"] = store.location();
    document["files"] = Json::array();
    for (const TrialInput& input : inputs) document["files"].push_back(to_json(input));
    document["added"] = trials.added;
    document["known"] = trials.known;
    document["winners_changed"] = trials.winners;
    document["import"] = counts.id.empty() ? Json() : Json(counts.id);
    print_document(document);
    return;
  }
  print(std::format("{} added to {}, {} known before; {} changed\n",
                    count_text(trials.added, "trial"), store.location(), trials.known,
                    count_text(trials.winners, "winner")));
  if (counts.id.empty()) return;
  print(std::format("import {}; `dorajit import --undo {}` takes it back\n", counts.id, counts.id));
}

}  // namespace

CLI::App* ImportCommand::declare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("import", "Add what other machines measured to the tuning database");
  CLI::Option* files =
      command->add_option("FILE", files_, "Files of `dorajit export`, or tuning databases");
  command->add_option("--into", folder_, "Make a database to ship, as FOLDER/tuning.db, instead")
      ->option_text("FOLDER")
      ->needs(files);
  CLI::Option* undo =
      command->add_option("--undo", undone_, "Take out again what an import brought")
          ->option_text("ID")
          ->excludes(files);
  command->add_flag("--list", list_, "List the imports, as --undo takes them")
      ->excludes(files)
      ->excludes(undo);
  add_partial_option(*command, partial_);
  command->footer(
      "Example:\n"
      "  dorajit import h200.jsonl other-host/tuning.db\n"
      "  dorajit import --undo 3f9c02d17ab4");
  return command;
}

Result<ExitCode> ImportCommand::import_files(const Invocation& invocation) const {
  ProgressBar progress(!invocation.json);
  DORAJIT_ASSIGN(const std::vector<TrialInput> inputs, read_inputs(files_, partial_, progress));
  const auto composition = bindings::compose_engine(invocation.settings);
  cache::TuningStore& store = *composition.store;
  const auto counts = store.import_trials(all_trials(inputs), names_of(inputs),
                                          progress.follow("adding to the database"));
  progress.hide();
  if (!counts) return nothing_kept("imported", store);
  print_counts(invocation, inputs, *counts, store);
  return ExitCode::kOk;
}

Result<ExitCode> ImportCommand::ship(const Invocation& invocation) const {
  ProgressBar progress(!invocation.json);
  DORAJIT_ASSIGN(const std::vector<TrialInput> inputs, read_inputs(files_, partial_, progress));
  cache::Trust trust = bindings::trust_of(invocation.settings);
  trust.place = cache::FilePlace::kNamedFolder;
  const auto store =
      cache::TuningStore::open(std::filesystem::absolute(folder_).string(), {.trust = trust});
  const cache::MergeCounts counts = store->merge(all_trials(inputs));
  progress.hide();
  if (!store->persistent()) return nothing_kept("imported", *store);
  print_counts(invocation, inputs, {.trials = counts, .id = {}}, *store);
  return ExitCode::kOk;
}

Result<ExitCode> ImportCommand::undo(const Invocation& invocation) const {
  const auto composition = bindings::compose_engine(invocation.settings);
  cache::TuningStore& store = *composition.store;
  const auto counts = store.undo_import(undone_);
  if (!counts) {
    if (!store.persistent()) return nothing_kept("undone", store);
    return fail(StatusCode::kIoError,
                std::format("{} has no import {}; `dorajit import --list` lists them",
                            store.location(), undone_));
  }
  if (invocation.json) {
    Json document = begin_document("import");
    document["database"] = store.location();
    document["undone"] = undone_;
    document["removed"] = counts->removed;
    document["kept"] = counts->kept;
    document["winners_changed"] = counts->winners;
    print_document(document);
    return ExitCode::kOk;
  }
  const std::string kept =
      counts->kept == 0
          ? ""
          : std::format(", {} kept that another import brought as well", counts->kept);
  print(std::format("{} taken out of {}{}; {} changed\n", count_text(counts->removed, "trial"),
                    store.location(), kept, count_text(counts->winners, "winner")));
  return ExitCode::kOk;
}

Result<ExitCode> ImportCommand::list(const Invocation& invocation) {
  const auto composition = bindings::compose_engine(invocation.settings);
  const auto imports = composition.store->imports();
  DORAJIT_TRY(composition.store->readable());
  if (invocation.json) {
    Json document = begin_document("import");
    document["database"] = composition.store->location();
    document["imports"] = Json::array();
    for (const cache::ImportRecord& one : imports) {
      document["imports"].push_back({{"import", one.id},
                                     {"created_unix_s", one.created_unix_s},
                                     {"trials", one.trials},
                                     {"source", one.source}});
    }
    print_document(document);
    return ExitCode::kOk;
  }
  if (imports.empty()) {
    print(std::format("{} has no import\n", composition.store->location()));
    return ExitCode::kOk;
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto now_s = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  Table table({{"import"}, {"age", Align::kRight}, {"trials", Align::kRight}, {"from"}});
  for (const cache::ImportRecord& one : imports) {
    table.add_row(
        {one.id, age_text(now_s - one.created_unix_s), std::to_string(one.trials), one.source});
  }
  print(table.text());
  return ExitCode::kOk;
}

Result<ExitCode> ImportCommand::run(const Invocation& invocation) {
  if (!undone_.empty()) return undo(invocation);
  if (list_) return list(invocation);
  if (files_.empty()) {
    return fail(StatusCode::kInvalidArgument,
                "FILE is required, one of `dorajit export` or a tuning database; see `dorajit "
                "import --help`");
  }
  return folder_.empty() ? import_files(invocation) : ship(invocation);
}

}  // namespace dorajit::cli
