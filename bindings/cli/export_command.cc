#include "bindings/cli/export_command.h"

#include <CLI/CLI.hpp>
#include <format>
#include <vector>

#include "bindings/cli/device_choice.h"
#include "bindings/cli/output.h"
#include "bindings/cli/progress_bar.h"
#include "bindings/cli/text_format.h"
#include "bindings/composition.h"
#include "cache/trial_files.h"

namespace dorajit::cli {

CLI::App* ExportCommand::declare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("export", "Write what was measured as text, for other machines");
  command->add_option("--out", out_, "Where to write [standard output]")->option_text("FILE");
  command
      ->add_option("--device-name", device_name_,
                   "Only trials of devices whose fingerprint contains this")
      ->option_text("TEXT");
  command->footer("Example:\n  dorajit export --out h200.jsonl --device-name H200");
  return command;
}

Result<ExitCode> ExportCommand::run(const Invocation& invocation) {
  if (invocation.json && out_.empty()) {
    return fail(StatusCode::kInvalidArgument,
                "export --json needs --out FILE: standard output has room for one of the two");
  }
  const auto composition = bindings::compose_engine(invocation.settings);
  cache::TuningStore& store = *composition.store;
  DORAJIT_ASSIGN(const std::string only_device,
                 fingerprint_asked_for(*composition.engine, invocation.device));
  ProgressBar progress(!invocation.json);
  progress.show("reading the database");
  std::vector<cache::Trial> trials = store.trials();
  DORAJIT_TRY(store.readable());
  std::erase_if(trials, [&](const cache::Trial& trial) {
    return !trial.device.contains(device_name_) ||
           (!only_device.empty() && trial.device != only_device);
  });

  if (out_.empty()) {
    const cache::TrialText text = cache::to_lines(trials, progress.follow("writing"));
    progress.hide();
    print_bytes(text.lines);
    print_note(std::format("{} from {}", count_text(text.trials, "trial"), store.location()));
    if (text.left_out > 0) print_note(left_out_text(text.left_out));
    return ExitCode::kOk;
  }
  DORAJIT_ASSIGN(const cache::TrialText text,
                 cache::write_trial_file(out_, trials, progress.follow("writing")));
  progress.hide();
  if (invocation.json) {
    Json document = begin_document("export");
    document["out"] = out_;
    document["trials"] = text.trials;
    document["left_out"] = text.left_out;
    print_document(document);
  } else {
    print(std::format("{} from {} written to {}\n", count_text(text.trials, "trial"),
                      store.location(), out_));
    if (text.left_out > 0) print(left_out_text(text.left_out) + "\n");
  }
  return ExitCode::kOk;
}

}  // namespace dorajit::cli
