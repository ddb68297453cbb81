#include <format>
#include <string>
#include <utility>

#include "cache/database/tuning_store.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"

namespace dorajit::cache {

std::optional<TuningClaim> TuningStore::claim(std::string_view device, std::string_view problem,
                                              std::chrono::milliseconds wait) {
  if (cache_dir_.empty()) return TuningClaim();
  const std::string directory = cache_dir_ + "/locks";
  const std::string key = Hasher("claim").add("device", device).add("problem", problem).digest();
  auto lock = [&]() -> Result<std::optional<FileLock>> {
    DORAJIT_ASSIGN(const auto locks, TrustedDirectory::make(cache_dir_, options_.trust, {"locks"}));
    const std::string name = key + ".lock";
    // Any other user who can open the file could hold the lock for ever.
    DORAJIT_TRY(locks.check_file(name));
    return FileLock::acquire(locks.held_path() + "/" + name, FileLock::Mode::kExclusive, wait,
                             FilePlace::kCacheFolder, locks.file_mode());
  }();
  if (!lock) {
    log_once(LogLevel::kWarning, directory,
             std::format("several processes may tune the same problem at once: {}",
                         lock.error().message));
    return TuningClaim();
  }
  if (!*lock) return std::nullopt;
  return *std::move(lock);
}

}  // namespace dorajit::cache
