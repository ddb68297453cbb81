#include "bindings/cli/bundle_db_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <format>
#include <utility>

#include "bindings/cli/device_bundles.h"
#include "bindings/cli/output.h"
#include "bindings/cli/progress_bar.h"
#include "bindings/cli/table.h"
#include "bindings/cli/text_format.h"
#include "bindings/cli/trial_inputs.h"
#include "cache/shipped_database.h"
#include "cache/trial_files.h"
#include "cache/winner_choice.h"

namespace dorajit::cli {
namespace {

struct Written {
  DeviceBundle bundle;
  std::vector<std::string> paths;
  cache::TrialText text;
  std::int64_t winners = 0;
};

Json to_json(const Written& written) {
  const DeviceBundle& bundle = written.bundle;
  return {{"name", bundle.name},
          {"paths", written.paths},
          {"trials", written.text.trials},
          {"winners", written.winners},
          {"devices", bundle.devices},
          {"drivers", bundle.drivers},
          {"hosts", bundle.hosts},
          {"first_unix_s", bundle.first_unix_s},
          {"last_unix_s", bundle.last_unix_s}};
}

Status check_names(const std::vector<std::string>& inputs, const Written& written) {
  for (const std::string& path : written.paths) {
    std::error_code ignored;
    const bool is_input = std::ranges::any_of(inputs, [&](const std::string& input) {
      return std::filesystem::equivalent(input, path, ignored);
    });
    // Text may be put in the place of what it was made from; a database that somebody uses not.
    if (is_input && path.ends_with(".db")) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("{} is one of the inputs; write to another folder with --out", path));
    }
  }
  return {};
}

}  // namespace

CLI::App* BundleDbCommand::declare(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bundle-db", "Make databases to ship, one per device model, from what machines measured");
  command->add_option("FILE", inputs_, "Files of `dorajit export`, or tuning databases")
      ->required();
  command->add_option("--out", folder_, "The folder to write to, which must be there [.]")
      ->option_text("FOLDER");
  command
      ->add_option("--device-name", device_name_,
                   "Only trials of devices whose fingerprint contains this")
      ->option_text("TEXT");
  command->add_flag("--all", all_, "Also trials of other kernel templates than this program's");
  command->add_flag("--sqlite", sqlite_, "Also as databases, as DORAJIT_DATABASES takes them");
  add_partial_option(*command, partial_);
  command->footer("Example:\n  dorajit bundle-db --out databases host-a.jsonl host-b/tuning.db");
  return command;
}

Result<ExitCode> BundleDbCommand::run(const Invocation& invocation) {
  ProgressBar progress(!invocation.json);
  DORAJIT_ASSIGN(const std::vector<TrialInput> inputs, read_inputs(inputs_, partial_, progress));
  std::vector<cache::Trial> trials;
  for (const TrialInput& input : inputs) {
    trials.insert(trials.end(), input.file.trials.begin(), input.file.trials.end());
  }
  std::erase_if(trials, [&](const cache::Trial& t) { return !t.device.contains(device_name_); });
  const std::int64_t left_out = all_ ? 0 : drop_other_templates(trials);
  if (trials.empty()) {
    return fail(StatusCode::kIoError,
                std::format("there is nothing to bundle: {} left out, which other kernel "
                            "templates made; --all takes them too",
                            count_text(left_out, "trial")));
  }

  std::vector<Written> files;
  for (DeviceBundle& bundle : bundle_by_model(trials)) {
    Written written{.bundle = std::move(bundle), .paths = {}, .text = {}, .winners = 0};
    const std::string stem = (std::filesystem::path(folder_) / written.bundle.name).string();
    written.paths.push_back(stem + ".jsonl");
    if (sqlite_) written.paths.push_back(stem + ".db");
    DORAJIT_TRY(check_names(inputs_, written));
    files.push_back(std::move(written));
  }
  for (Written& written : files) {
    const auto& its_trials = written.bundle.trials;
    DORAJIT_ASSIGN(written.text,
                   cache::write_trial_file(written.paths.front(), its_trials,
                                           progress.follow("writing " + written.bundle.name)));
    written.winners = std::ssize(cache::choose_winners(its_trials));
    if (sqlite_) DORAJIT_TRY(cache::write_shipped_database(written.paths.back(), its_trials));
  }
  progress.hide();

  if (invocation.json) {
    Json document = begin_document("bundle-db");
    document["files"] = Json::array();
    for (const TrialInput& input : inputs) document["files"].push_back(cli::to_json(input));
    document["left_out"] = left_out;
    document["bundles"] = Json::array();
    for (const Written& written : files) document["bundles"].push_back(to_json(written));
    print_document(document);
    return ExitCode::kOk;
  }
  Table table({{"file"},
               {"trials", Align::kRight},
               {"winners", Align::kRight},
               {"devices", Align::kRight},
               {"hosts", Align::kRight}});
  for (const Written& written : files) {
    for (const std::string& path : written.paths) {
      table.add_row({path, std::to_string(written.text.trials), std::to_string(written.winners),
                     std::to_string(written.bundle.devices.size()),
                     std::to_string(written.bundle.hosts.size())});
    }
  }
  print(table.text());
  if (left_out > 0) {
    print(std::format("{} left out, which other kernel templates made\n",
                      count_text(left_out, "trial")));
  }
  return ExitCode::kOk;
}

}  // namespace dorajit::cli
