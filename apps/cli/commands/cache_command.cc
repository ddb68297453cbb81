#include "apps/cli/commands/cache_command.h"

#include <CLI/CLI.hpp>
#include <chrono>

#include "apps/cli/terminal/output.h"
#include "cache/database/database.h"
#include "cache/files/live_directory.h"

namespace dorajit::cli {

CLI::App* CacheCommand::declare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("cache", "Show where kernels and winners are kept");
  command->require_subcommand(1);
  command->add_subcommand("path", "Print the cache folder")
      ->footer("Example:\n  du -sh \"$(dorajit cache path)\"");
  command->footer("Example:\n  dorajit cache path");
  return command;
}

Result<ExitCode> CacheCommand::run(const Invocation& invocation) {
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

}  // namespace dorajit::cli
