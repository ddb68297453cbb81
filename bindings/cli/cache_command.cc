#include "bindings/cli/cache_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <format>

#include "bindings/cli/output.h"
#include "bindings/cli/text_format.h"
#include "bindings/composition.h"
#include "cache/database.h"
#include "cache/live_directory.h"

namespace dorajit::cli {
namespace {

Result<ExitCode> print_path(const Invocation& invocation) {
  const std::string& folder = invocation.settings.cache_dir;
  if (folder.empty()) {
    return fail(StatusCode::kIoError,
                "there is no cache folder: set DORAJIT_CACHE_DIR, XDG_CACHE_HOME or HOME");
  }
  if (invocation.json) {
    Json document = begin_document("cache path");
    document["folder"] = folder;
    document["database"] =
        cache::Database(cache::live_directory(folder), std::chrono::milliseconds(0)).path();
    print_document(document);
  } else {
    print_bytes(folder + "\n");
  }
  return ExitCode::kOk;
}

Result<ExitCode> rebuild(const Invocation& invocation) {
  const auto composition = bindings::compose_engine(invocation.settings);
  cache::TuningStore& store = *composition.store;
  const std::int64_t before = std::ssize(store.winners());
  const auto after = store.rebuild_winners();
  if (!after) {
    return fail(StatusCode::kIoError,
                std::format("the winners are as they were, since the tuning database cannot be "
                            "written: {}",
                            store.reason_not_persistent()));
  }
  if (invocation.json) {
    Json document = begin_document("cache rebuild");
    document["database"] = store.location();
    document["trials"] = store.trial_count();
    document["winners_before"] = before;
    document["winners"] = *after;
    print_document(document);
  } else {
    print(std::format("{} from {} in {}; there were {}\n", count_text(*after, "winner"),
                      count_text(store.trial_count(), "trial"), store.location(), before));
  }
  return ExitCode::kOk;
}

}  // namespace

CLI::App* CacheCommand::declare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("cache", "Where results are kept, and winners anew");
  command->require_subcommand(1);
  path_ = command->add_subcommand("path", "Print the cache folder");
  path_->footer("Example:\n  du -sh \"$(dorajit cache path)\"");
  rebuild_ = command->add_subcommand("rebuild",
                                     "Forget the winners and derive them from what was measured");
  rebuild_->footer("Example:\n  dorajit cache rebuild");
  command->footer("Example:\n  dorajit cache path\n  dorajit cache rebuild --json");
  return command;
}

Result<ExitCode> CacheCommand::run(const Invocation& invocation) {
  return rebuild_->parsed() ? rebuild(invocation) : print_path(invocation);
}

}  // namespace dorajit::cli
