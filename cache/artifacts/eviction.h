// Enforces the size limit of the artifact folder.
#pragma once

#include <cstdint>
#include <string>

#include "cache/files/trusted_directory.h"

namespace dorajit::cache {

// Below the cache folder.
inline constexpr const char* kArtifactFolder = "artifacts";

struct Eviction {
  std::uint64_t bytes_left = 0;
  std::uint64_t bytes_deleted = 0;
  std::int64_t files_left = 0;
  std::int64_t files_deleted = 0;
};

// Deletes artifacts below `artifacts`, the least recently used first, until they fit in
// `max_bytes`; never deletes `keep`, a path in that folder. Also removes stale temporary files.
// Files that vanish meanwhile were deleted by another process: not an error. Processes that have
// loaded a kernel keep it; those that need it later compile it again.
Eviction evict_least_recently_used(const TrustedDirectory& artifacts, std::uint64_t max_bytes,
                                   const std::string& keep);

}  // namespace dorajit::cache
