#include "bindings/cli/merge_command.h"

#include <CLI/CLI.hpp>
#include <format>
#include <utility>

#include "bindings/cli/output.h"
#include "bindings/cli/progress_bar.h"
#include "bindings/cli/text_format.h"
#include "bindings/cli/trial_inputs.h"
#include "cache/winner_choice.h"

namespace dorajit::cli {

CLI::App* MergeCommand::declare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("merge", "Make one file of trials out of several");
  command->add_option("OUT", out_, "The file to write; may be one of the others")->required();
  command->add_option("IN", inputs_, "Files of `dorajit export`, or tuning databases")->required();
  add_partial_option(*command, partial_);
  command->footer("Example:\n  dorajit merge fleet.jsonl host-a.jsonl host-b/tuning.db");
  return command;
}

Result<ExitCode> MergeCommand::run(const Invocation& invocation) {
  ProgressBar progress(!invocation.json);
  DORAJIT_ASSIGN(const std::vector<TrialInput> inputs, read_inputs(inputs_, partial_, progress));
  std::vector<cache::Trial> trials;
  for (const TrialInput& input : inputs) {
    if (input.path == out_ && input.file.kind == cache::TrialFileKind::kDatabase) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("{} is a tuning database, which merge does not write; name another "
                              "file, or add to it with `dorajit import`",
                              out_));
    }
    trials.insert(trials.end(), input.file.trials.begin(), input.file.trials.end());
  }
  DORAJIT_ASSIGN(const cache::TrialText text,
                 cache::write_trial_file(out_, trials, progress.follow("writing")));
  const std::int64_t winners = std::ssize(cache::choose_winners(trials));
  progress.hide();
  if (invocation.json) {
    Json document = begin_document("merge");
    document["out"] = out_;
    document["files"] = Json::array();
    for (const TrialInput& input : inputs) document["files"].push_back(to_json(input));
    document["trials"] = text.trials;
    document["left_out"] = text.left_out;
    document["winners"] = winners;
    print_document(document);
  } else {
    print(std::format("{} from {} written to {}, which prove {}\n",
                      count_text(text.trials, "trial"), count_text(std::ssize(inputs), "file"),
                      out_, count_text(winners, "winner")));
    if (text.left_out > 0) print(left_out_text(text.left_out) + "\n");
  }
  return ExitCode::kOk;
}

}  // namespace dorajit::cli
