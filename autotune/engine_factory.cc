#include "autotune/engine_factory.h"

#include <filesystem>
#include <format>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "autotune/service/protocol/socket_path.h"
#include "autotune/sources/problem_record.h"
#include "autotune/sources/tuning_config_source.h"
#include "cache/artifacts/artifact_files.h"
#include "cache/database/overlay_databases.h"
#include "cache/files/directories.h"
#include "cache/records/pins.h"
#include "own_kernels/kernel.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/log.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::autotune {
namespace {

// A folder, or the reason why there is none.
using Folder = Result<std::string>;

std::string path_of(const Folder& folder) { return folder.value_or(std::string()); }

// The folder to store results in. A read-only one is accepted: its contents can be used.
Folder usable_cache_dir(const std::string& cache_dir, const cache::Trust& trust) {
  if (cache_dir.empty()) {
    return fail(StatusCode::kIoError, "no cache folder is set; set DORAJIT_CACHE_DIR to a folder");
  }
  const auto made = cache::TrustedDirectory::make(cache_dir, trust);
  if (made) return cache_dir;
  log_once(
      LogLevel::kWarning, cache_dir,
      std::format("nothing is stored on disk, so kernels are compiled and tuned again in every "
                  "process: {}",
                  made.error().message));
  return std::unexpected(made.error());
}

// The folder of files that processes lock: `cache_dir`, or a local one if that is on a network file
// system.
Folder usable_tuning_dir(const Folder& usable) {
  if (!usable) return usable;
  const std::string& cache_dir = *usable;
  std::string live_dir = cache::live_directory(cache_dir);
  if (live_dir == cache_dir) return cache_dir;
  Status made = live_dir.empty()
                    ? fail(StatusCode::kIoError, "neither /var/tmp nor TMPDIR is local")
                    : cache::make_live_directory(live_dir);
  std::string what =
      std::format("{} is on a network file system, where a database cannot be shared", cache_dir);
  what += made ? std::format(": tuning results are kept in {}/tuning.db", live_dir)
               : std::format(", and tuning results stay in memory: {}", made.error().message);
  if (std::error_code error; made && std::filesystem::exists(cache_dir + "/tuning.db", error)) {
    what += std::format("; `dorajit import {}/tuning.db` takes over what is there", cache_dir);
  }
  log_once(LogLevel::kWarning, "network " + cache_dir, what);
  if (!made) return std::unexpected(made.error());
  return live_dir;
}

// The installed program that compiles users' kernels; empty if there is none or others could have
// written it. As with the code of this library, groups are not checked: in many environments they
// may write.
std::string installed_worker() {
  const cache::Trust trust{
      .group = true, .owner = owner_of_this_code(), .place = cache::FilePlace::kDatabases};
  const std::filesystem::path program = installed_file("bin/dorajitd");
  if (program.empty()) return {};
  Status checked;
  if (const auto folder = cache::TrustedDirectory::open(program.parent_path(), trust); !folder) {
    checked = std::unexpected(folder.error());
  } else if (*folder) {
    checked = (*folder)->check_file(program.filename());
  }
  if (checked) return program;
  log_once(LogLevel::kWarning, program.string(),
           std::format("own kernels are not compiled: {}; or set DORAJIT_WORKER={} if you trust it",
                       checked.error().message, program.string()));
  return {};
}

// Null if no daemon can be used: its winners would not be found.
std::unique_ptr<DaemonRequests> daemon_of(const Settings& settings, bool is_locked) {
  const bool may_ask = !is_locked && (settings.tune_policy == TunePolicy::kAutomatic ||
                                      settings.tune_policy == TunePolicy::kDaemon);
  if (!may_ask || settings.tuning_dir.empty()) return nullptr;
  return std::make_unique<DaemonRequests>(protocol::socket_folder(settings.daemon_dir),
                                          protocol::own_hello(settings.tuning_dir));
}

// With `lock`, configs come from that file alone.
EngineParts make_parts(const Settings& settings, const Clock& clock,
                       std::optional<cache::PinFile> lock) {
  const bool is_locked = lock.has_value();
  set_log_level(settings.log_level);
  Settings used = settings;
  const cache::Trust trust = trust_of(settings);
  const Folder cache_dir = usable_cache_dir(settings.cache_dir, trust);
  const Folder tuning_dir = usable_tuning_dir(cache_dir);
  used.cache_dir = path_of(cache_dir);
  used.tuning_dir = path_of(tuning_dir);
  if (used.worker.empty()) used.worker = installed_worker();

  std::shared_ptr<cache::TuningStore> store = cache::TuningStore::open(
      used.tuning_dir,
      {.overlays = cache::databases_in(used.shipped_databases, overlay_trust_of(settings)),
       .trust = trust,
       .overlay_trust = overlay_trust_of(settings),
       .without_folder = tuning_dir ? "" : tuning_dir.error().message,
       .lock = std::move(lock)});
  std::shared_ptr<ArtifactStore> artifacts;
  if (!used.cache_dir.empty()) {
    artifacts = std::make_shared<cache::ArtifactFiles>(
        used.cache_dir, static_cast<std::uint64_t>(used.cache_max_bytes), trust);
  }
  auto statistics = std::make_unique<Statistics>();
  std::unique_ptr<launch::ConfigSource> configs = std::make_unique<TuningConfigSource>(
      used, store, *statistics, daemon_of(used, is_locked), clock);
  if (!used.record_path.empty()) {
    configs = std::make_unique<RecordingConfigSource>(used.record_path, std::move(configs));
  }
  auto engine = std::make_unique<Engine>(std::move(used), std::move(statistics),
                                         std::move(artifacts), std::move(configs));
  return {.store = std::move(store), .engine = std::move(engine)};
}

}  // namespace

cache::Trust trust_of(const Settings& settings) { return {.group = settings.trust_group}; }

cache::Trust overlay_trust_of(const Settings& settings) {
  cache::Trust trust = cache::kOverlayTrust;
  trust.group = settings.trust_group;
  trust.owner = owner_of_this_code();
  return trust;
}

EngineParts make_engine(const Settings& settings, const Clock& clock) {
  return make_parts(settings, clock, std::nullopt);
}

void serve_kept_kernels(const Settings& settings) {
  if (settings.cache_dir.empty()) return;
  own_kernels::serve_kept_kernels(std::make_shared<cache::ArtifactFiles>(
      settings.cache_dir, static_cast<std::uint64_t>(settings.cache_max_bytes), cache::Trust{}));
}

Result<EngineParts> make_application_engine(const Settings& settings) {
  std::optional<cache::PinFile> lock;
  if (!settings.locked_path.empty()) {
    auto pins = cache::read_pin_file(settings.locked_path);
    if (!pins) {
      return fail(pins.error().code,
                  std::format("DORAJIT_LOCKED: {}; or unset it", pins.error().message));
    }
    lock = {.path = settings.locked_path, .pins = *std::move(pins)};
  }
  return make_parts(settings, std::chrono::steady_clock::now, std::move(lock));
}

}  // namespace dorajit::autotune
