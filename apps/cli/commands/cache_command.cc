#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <format>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "apps/cli/commands/commands.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/table.h"
#include "autotune/engine_factory.h"
#include "cache/artifacts/artifact_files.h"
#include "cache/database/database.h"
#include "cache/files/directories.h"
#include "cache/files/trusted_directory.h"

namespace dorajit::cli {
namespace {

namespace fs = std::filesystem;

struct Usage {
  std::int64_t files = 0;
  std::int64_t bytes = 0;
};
using UsageByKind = std::map<std::string, Usage>;

// Adds the files below a folder to their kind and to the total. Files that vanish meanwhile are
// left out.
void measure(const fs::path& folder, UsageByKind& usage) {
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                         error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code vanished;
    if (entry->symlink_status(vanished).type() != fs::file_type::regular) continue;
    const auto bytes = static_cast<std::int64_t>(entry->file_size(vanished));
    if (vanished) continue;
    const std::string room = (*entry->path().lexically_relative(folder).begin()).string();
    const char* kind = room == cache::kArtifactFolder  ? "kernels"
                       : room.starts_with("tuning.db") ? "database"
                                                       : "other";
    for (const char* one : {kind, "total"}) {
      usage[one].files += 1;
      usage[one].bytes += bytes;
    }
  }
}

Result<std::string> cache_folder(const Invocation& invocation) {
  if (!invocation.settings.cache_dir.empty()) return invocation.settings.cache_dir;
  return fail(StatusCode::kIoError,
              "there is no cache folder: set DORAJIT_CACHE_DIR, XDG_CACHE_HOME or HOME");
}

Result<ExitCode> print_path(const Invocation& invocation, NoOptions) {
  DORAJIT_ASSIGN(const std::string folder, cache_folder(invocation));
  if (!invocation.json) {
    print_bytes(folder + "\n");
    return ExitCode::kOk;
  }
  const cache::Database database(cache::live_directory(folder), std::chrono::milliseconds(0));
  return print_result(true, "cache path", {{"folder", folder}, {"database", database.path()}}, {});
}

Result<ExitCode> print_size(const Invocation& invocation, NoOptions) {
  DORAJIT_ASSIGN(const std::string folder, cache_folder(invocation));
  UsageByKind usage;
  for (const std::string& one : std::set{folder, cache::live_directory(folder)}) {
    if (!one.empty()) measure(one, usage);
  }
  Json document = {{"folder", folder}, {"max_kernel_bytes", invocation.settings.cache_max_bytes}};
  Table table({{folder}, {"files", Align::kRight}, {"size", Align::kRight}});
  for (const char* kind : {"kernels", "database", "other", "total"}) {
    const auto [files, bytes] = usage[kind];
    document[kind] = {{"files", files}, {"bytes", bytes}};
    table.add_row({kind, std::to_string(files), bytes_text(bytes)});
  }
  return print_result(invocation.json, "cache size", document,
                      std::format("{}kernels may take {} (DORAJIT_CACHE_MAX_BYTES)\n", table.text(),
                                  bytes_text(invocation.settings.cache_max_bytes)));
}

Result<cache::Eviction> evict(const Invocation& invocation, std::uint64_t max_bytes) {
  DORAJIT_ASSIGN(const std::string path, cache_folder(invocation));
  DORAJIT_ASSIGN(const auto artifacts,
                 cache::TrustedDirectory::open(path, autotune::trust_of(invocation.settings),
                                               {cache::kArtifactFolder}));
  if (!artifacts) return cache::Eviction();
  const cache::Eviction done = cache::evict_least_recently_used(*artifacts, max_bytes, "");
  if (done.bytes_left <= max_bytes) return done;
  return fail(
      StatusCode::kIoError,
      std::format("{} of kernels cannot be deleted from {}; is it writable?",
                  bytes_text(static_cast<std::int64_t>(done.bytes_left)), artifacts->path()));
}

std::string eviction_text(const cache::Eviction& done) {
  return std::format("{} deleted, {}; {} left, {}\n", count_text(done.files_deleted, "kernel"),
                     bytes_text(static_cast<std::int64_t>(done.bytes_deleted)), done.files_left,
                     bytes_text(static_cast<std::int64_t>(done.bytes_left)));
}

Json eviction_json(const cache::Eviction& done) {
  return {{"kernels_deleted", done.files_deleted},
          {"bytes_deleted", done.bytes_deleted},
          {"kernels_left", done.files_left},
          {"bytes_left", done.bytes_left}};
}

Result<ExitCode> prune(const Invocation& invocation, std::uint64_t max_bytes) {
  DORAJIT_ASSIGN(const cache::Eviction done, evict(invocation, max_bytes));
  return print_result(invocation.json, "cache prune", eviction_json(done), eviction_text(done));
}

Result<ExitCode> clear(const Invocation& invocation, bool with_winners) {
  DORAJIT_ASSIGN(const cache::Eviction done, evict(invocation, 0));
  Json document = eviction_json(done);
  std::string text = eviction_text(done);
  if (with_winners) {
    const auto parts = autotune::make_engine(invocation.settings);
    DORAJIT_ASSIGN(const cache::ForgottenCounts forgotten, parts.store->forget("", ""));
    document["winners_deleted"] = forgotten.winners;
    document["trials_deleted"] = forgotten.trials;
    text += std::format("{} and {} deleted\n", count_text(forgotten.winners, "winner"),
                        count_text(forgotten.trials, "trial"));
  }
  return print_result(invocation.json, "cache clear", document, text);
}

}  // namespace

void declare_cache(CLI::App& app, std::vector<Command>& commands) {
  CLI::App* group = app.add_subcommand("cache", "Show the cache folder's path and size; empty it");
  group->require_subcommand(1);
  group->footer("Example:\n  dorajit cache size\n  dorajit cache prune --max-bytes 500MiB");
  add_command<NoOptions>(*group, commands, "path", "Print the path of the cache folder",
                         "ls \"$(dorajit cache path)\"", print_path);
  add_command<NoOptions>(*group, commands, "size",
                         "Count kernels, tuning data and other files in bytes",
                         "dorajit cache size", print_size);
  const auto [clearing, with_winners] = add_command<bool>(
      *group, commands, "clear", "Delete all compiled kernels", "dorajit cache clear", clear);
  clearing.add_flag("--winners", with_winners, "Also delete all trials and winners");
  const auto [pruning, max_bytes] = add_command<std::uint64_t>(
      *group, commands, "prune", "Delete the least recently used kernels beyond a size",
      "dorajit cache prune --max-bytes 500MiB", prune);
  pruning.add_option("--max-bytes", max_bytes, "The size of the kernels that stay, as in 500MiB")
      ->option_text("N")
      ->transform(CLI::AsSizeValue(false))
      ->required();
}

}  // namespace dorajit::cli
