#include "apps/cli/commands/export_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <format>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/trial_inputs.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/text_format.h"
#include "autotune/engine_factory.h"
#include "cache/database/shipped_database.h"
#include "cache/records/winner_choice.h"
#include "runtime/base/hash.h"
#include "runtime/launch/problem.h"

namespace dorajit::cli {
namespace {

struct Read {
  std::vector<TrialInput> files;
  std::vector<cache::Trial> trials;
  std::string origin;                  // for people
  std::vector<std::string> databases;  // must not be overwritten
};

Result<Read> read_files(const std::vector<std::string>& paths, bool partial,
                        ProgressBar& progress) {
  Read read;
  DORAJIT_ASSIGN(read.files, read_inputs(paths, partial, progress));
  for (const TrialInput& input : read.files) {
    std::ranges::copy(input.file.trials, std::back_inserter(read.trials));
    if (input.file.kind == cache::TrialFileKind::kDatabase) read.databases.push_back(input.path);
  }
  read.origin = count_text(std::ssize(read.files), "file");
  return read;
}

Result<Read> read_store(cache::TuningStore& store, ProgressBar& progress) {
  progress.show("reading the database");
  Read read{.files = {},
            .trials = store.trials(),
            .origin = store.location(),
            .databases = {store.location()}};
  DORAJIT_TRY(store.readable());
  return read;
}

// Text may take the place of text that it was made of; a database may be in use.
Status check_is_no_input(const std::string& out, const std::vector<std::string>& databases) {
  std::error_code ignored;
  for (const std::string& path : databases) {
    if (std::filesystem::equivalent(path, out, ignored)) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("--out {} is a database that is exported; name another file", out));
    }
  }
  return {};
}

// Removes the trials of other kernels than this program's: how many they were.
std::int64_t drop_other_kernels(std::vector<cache::Trial>& trials) {
  using kernels::DeviceKind;
  std::map<std::pair<std::string, DeviceKind>, std::string> ours;  // by variant
  return static_cast<std::int64_t>(std::erase_if(trials, [&](const cache::Trial& trial) {
    const auto problem = launch::parse_problem(trial.problem);
    if (!problem) return true;
    const DeviceKind kind =
        trial.device.starts_with("cuda/") ? DeviceKind::kCuda : DeviceKind::kCpu;
    std::string& templates = ours[{to_text(problem->variant), kind}];
    if (templates.empty()) templates = hash_hex(source_identity(problem->variant, kind));
    return trial.environment.templates != templates;
  }));
}

// Text for standard output, where `out` is empty, is left to the caller.
Result<cache::TrialText> write_to(const std::string& out, const std::vector<cache::Trial>& trials,
                                  ProgressBar& progress) {
  const auto shown = progress.follow("writing");
  if (out.empty()) return cache::to_lines(trials, shown);
  if (!out.ends_with(".db")) return cache::write_trial_file(out, trials, shown);
  DORAJIT_TRY(cache::write_shipped_database(out, trials));
  return cache::TrialText{.lines = {}, .trials = std::ssize(cache::each_once_in_order(trials))};
}

}  // namespace

CLI::App* ExportCommand::declare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("export", "Write what was measured to a file, for other machines");
  command
      ->add_option("--out", out_,
                   "Where to write: text, or a read-only database if it ends with .db [standard "
                   "output]")
      ->option_text("FILE");
  command
      ->add_option("--from", files_,
                   "Take a file of `dorajit export` or a tuning database instead of this machine's "
                   "database; takes several")
      ->option_text("FILE");
  command
      ->add_option("--device-fingerprint", fingerprint_,
                   "Only devices whose fingerprint contains this")
      ->option_text("TEXT");
  command->add_flag("--ship", ship_,
                    "Only what the winners of this program's kernels follow from, as installations "
                    "ship it");
  add_partial_option(*command, partial_);
  command->footer(
      "Example:\n"
      "  dorajit export --out h200.jsonl --device-fingerprint H200\n"
      "  dorajit export --ship --from host-a.jsonl host-b.jsonl --out shipped.db");
  return command;
}

Result<ExitCode> ExportCommand::run(const Invocation& invocation) {
  if (invocation.json && out_.empty()) {
    return fail(StatusCode::kInvalidArgument,
                "export --json needs --out FILE: standard output has room for one of the two");
  }
  ProgressBar progress(!invocation.json);
  Read read;
  std::string only_device;
  if (files_.empty() || !invocation.device.empty()) {
    const auto parts = autotune::make_engine(invocation.settings);
    DORAJIT_ASSIGN(only_device, fingerprint_asked_for(*parts.engine, invocation.device));
    if (files_.empty()) {
      DORAJIT_ASSIGN(read, read_store(*parts.store, progress));
    }
  }
  if (!files_.empty()) {
    DORAJIT_ASSIGN(read, read_files(files_, partial_, progress));
  }
  DORAJIT_TRY(check_is_no_input(out_, read.databases));
  std::vector<cache::Trial>& trials = read.trials;
  std::erase_if(trials, [&](const cache::Trial& trial) {
    return !trial.device.contains(fingerprint_) ||
           (!only_device.empty() && trial.device != only_device);
  });
  const std::int64_t other_kernels = ship_ ? drop_other_kernels(trials) : 0;
  if (ship_) trials = cache::deciding_trials(trials);
  if (ship_ && trials.empty()) {
    return fail(StatusCode::kIoError,
                std::format("there is nothing to ship: {} of other kernels than this program's",
                            count_text(other_kernels, "trial")));
  }

  DORAJIT_ASSIGN(const cache::TrialText text, write_to(out_, trials, progress));
  progress.hide();

  if (invocation.json) {
    Json document = begin_document("export");
    document["out"] = out_;
    document["files"] = Json::array();
    for (const TrialInput& input : read.files) document["files"].push_back(to_json(input));
    document["trials"] = text.trials;
    document["winners"] = cache::choose_winners(trials).size();
    document["left_out"] = text.left_out;
    document["other_kernels"] = other_kernels;
    print_document(document);
    return ExitCode::kOk;
  }
  const auto say = [&](const std::string& line) {
    out_.empty() ? print_note(line) : print(line + "\n");
  };
  if (out_.empty()) print_bytes(text.lines);
  say(std::format("{} from {}{}", count_text(text.trials, "trial"), read.origin,
                  out_.empty() ? "" : " written to " + out_));
  if (text.left_out > 0) say(left_out_text(text.left_out));
  if (other_kernels > 0) {
    say(std::format("{} of other kernels than this program's left out",
                    count_text(other_kernels, "trial")));
  }
  return ExitCode::kOk;
}

}  // namespace dorajit::cli
