// Enforces the size limit of the artifact folder.
#pragma once

#include <cstdint>
#include <string>

#include "cache/files/trusted_directory.h"

namespace dorajit::cache {

// Deletes artifacts below `artifacts`, the least recently used first, until they fit in
// `max_bytes`; never deletes `keep`, a path in that folder. Also removes stale temporary files.
// Returns the remaining bytes. Files that vanish meanwhile were deleted by another process: not an
// error.
std::uint64_t evict_least_recently_used(const TrustedDirectory& artifacts, std::uint64_t max_bytes,
                                        const std::string& keep);

}  // namespace dorajit::cache
