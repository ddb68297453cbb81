#include "bindings/composition.h"

#include <format>
#include <string>
#include <utility>

#include "autotune/tuning_config_source.h"
#include "cache/artifact_files.h"
#include "cache/directories.h"
#include "cache/overlay_databases.h"
#include "runtime/base/log.h"
#include "runtime/base/statistics.h"

namespace dorajit::bindings {
namespace {

// The folder to keep things in, or nothing where there can be none. One that may only be read is
// kept: what is in it serves.
std::string usable_cache_dir(const std::string& cache_dir) {
  if (cache_dir.empty()) return {};
  Status made = cache::make_private_directories(cache_dir);
  if (made) made = cache::check_trusted(cache_dir);
  if (made) return cache_dir;
  log_once(LogLevel::kWarning, cache_dir,
           std::format("nothing is kept on disk, so kernels are compiled and tuned again in every "
                       "process: {}",
                       made.error().message));
  return {};
}

}  // namespace

Composition compose_engine(const Settings& settings) {
  set_log_level(settings.log_level);
  Settings used = settings;
  used.cache_dir = usable_cache_dir(settings.cache_dir);

  std::shared_ptr<cache::TuningStore> store = cache::TuningStore::open(
      used.cache_dir, {.overlays = cache::databases_in(used.shipped_databases)});
  std::shared_ptr<ArtifactStore> artifacts;
  if (!used.cache_dir.empty()) {
    artifacts = std::make_shared<cache::ArtifactFiles>(
        used.cache_dir, static_cast<std::uint64_t>(used.cache_max_bytes));
  }
  auto statistics = std::make_unique<Statistics>();
  auto configs = std::make_unique<autotune::TuningConfigSource>(used, store, *statistics);
  auto engine = std::make_unique<Engine>(std::move(used), std::move(statistics),
                                         std::move(artifacts), std::move(configs));
  return {.store = std::move(store), .engine = std::move(engine)};
}

}  // namespace dorajit::bindings
