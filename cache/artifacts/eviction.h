// The byte bound of the artifact folder.
#pragma once

#include <cstdint>
#include <string>

#include "cache/files/trusted_directory.h"

namespace dorajit::cache {

// Deletes artifacts below `artifacts`, the least recently used first, until they fit `max_bytes`;
// `keep`, a path in there, is never deleted. Removes stale temporary files too. Returns the bytes
// that are left. Files that vanish meanwhile are another process's doing and no error.
std::uint64_t evict_least_recently_used(const TrustedDirectory& artifacts, std::uint64_t max_bytes,
                                        const std::string& keep);

}  // namespace dorajit::cache
