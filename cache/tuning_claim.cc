#include "cache/tuning_claim.h"

#include <format>

#include "cache/directories.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"

namespace dorajit::cache {

std::optional<TuningClaim> TuningClaim::acquire(const std::string& cache_dir,
                                                std::string_view device, std::string_view problem,
                                                std::chrono::milliseconds wait) {
  if (cache_dir.empty()) return TuningClaim(std::nullopt);
  const std::string directory = cache_dir + "/locks";
  const std::string key = Hasher("claim").add("device", device).add("problem", problem).digest();
  auto lock = make_private_directories(directory).and_then([&] {
    return FileLock::acquire(std::format("{}/{}.lock", directory, key), FileLock::Mode::kExclusive,
                             wait);
  });
  if (!lock) {
    log_once(LogLevel::kWarning, directory,
             std::format("several processes may tune the same problem at once: {}",
                         lock.error().message));
    return TuningClaim(std::nullopt);
  }
  if (!*lock) return std::nullopt;
  return TuningClaim(*std::move(lock));
}

}  // namespace dorajit::cache
