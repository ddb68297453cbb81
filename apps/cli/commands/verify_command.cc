#include "apps/cli/commands/verify_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <format>
#include <system_error>
#include <utility>

#include "apps/cli/options/trial_inputs.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/text_format.h"
#include "cache/database/database.h"
#include "cache/files/live_directory.h"

namespace dorajit::cli {
namespace {

std::string verdict_text(const TrialInput& input) {
  const cache::TrialFile& file = input.file;
  const std::string trials = count_text(std::ssize(file.trials), "good trial");
  if (file.kind == cache::TrialFileKind::kDatabase) {
    if (!file.damage.empty()) return std::format("{}: damaged: {}\n", input.path, file.damage);
    return std::format("{}: {}, {}, {}\n", input.path, trials,
                       count_text(file.winners, "good winner"),
                       count_text(file.bad_count, "bad row"));
  }
  std::string text =
      std::format("{}: {}, {}\n", input.path, trials, count_text(file.bad_count, "bad line"));
  for (const cache::BadLine& line : file.bad) {
    text += std::format("{}:{}: {}\n", input.path, line.number, line.reason);
  }
  if (!file.damage.empty()) text += std::format("{}: damaged: {}\n", input.path, file.damage);
  return text;
}

std::string advice(const TrialInput& input) {
  if (input.file.kind == cache::TrialFileKind::kLines && !input.file.damage.empty()) {
    return "export it again; `dorajit export --partial --from FILE --out OTHER` makes a whole one "
           "of "
           "what is left";
  }
  if (!input.file.damage.empty()) {
    return "the next dorajit that uses this cache folder sets the file aside and keeps what can be "
           "read of it";
  }
  if (input.file.kind == cache::TrialFileKind::kDatabase) {
    return "bad rows are passed over everywhere; `dorajit export` leaves them behind";
  }
  return "bad lines are passed over; `dorajit export --from FILE --out OTHER` leaves them behind";
}

}  // namespace

CLI::App* VerifyCommand::declare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("verify", "Check a tuning database or a file of trials, changing nothing");
  command->add_option("FILE", path_, "What to check [the tuning database of the cache folder]");
  command->footer("Example:\n  dorajit verify h200.jsonl");
  return command;
}

Result<ExitCode> VerifyCommand::run(const Invocation& invocation) {
  TrialInput input{.path = path_, .file = {}};
  bool exists = true;
  if (path_.empty()) {
    if (invocation.settings.cache_dir.empty()) {
      return fail(StatusCode::kInvalidArgument,
                  "there is no cache folder: name a file, or set DORAJIT_CACHE_DIR");
    }
    input.path = cache::Database(cache::live_directory(invocation.settings.cache_dir),
                                 std::chrono::milliseconds(0))
                     .path();
    std::error_code ignored;
    exists = std::filesystem::exists(input.path, ignored);
  }
  if (exists) {
    ProgressBar progress(!invocation.json);
    DORAJIT_ASSIGN(input.file,
                   cache::read_trial_file(input.path, progress.follow("reading " + input.path)));
    progress.hide();
  }
  const bool good = input.file.is_complete();
  if (invocation.json) {
    Json document = begin_document("verify");
    document["good"] = good;
    document["exists"] = exists;
    document.update(to_json(input));
    document["winners"] = input.file.winners;
    print_document(document);
  } else if (!exists) {
    print(std::format("{}: not there yet, so nothing is wrong with it\n", input.path));
  } else {
    print(verdict_text(input));
    print(good ? "all of it is good\n" : advice(input) + "\n");
  }
  return good ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace dorajit::cli
