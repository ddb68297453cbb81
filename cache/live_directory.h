// Where the files that processes lock live.
#pragma once

#include <string>

namespace dorajit::cache {

// `cache_dir`, unless it is on a network file system, where locks cannot be trusted: then a folder
// of this machine, the same for every process of this user, and one warning says which. Makes
// nothing.
std::string live_directory(const std::string& cache_dir);

}  // namespace dorajit::cache
