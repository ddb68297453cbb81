// The folder of files that processes lock, if the cache folder is on a network file system.
#pragma once

#include <string>

#include "runtime/base/error.h"

namespace dorajit::cache {

// `cache_dir`, unless it is on a network file system, where locks are not reliable, and writable:
// then a local folder, the same for every process of this user; empty if there is none. Creates
// nothing.
std::string live_directory(const std::string& cache_dir);

// Creates that local folder and its parent. Only this user may own or write them, because they are
// in a place where every user may create folders.
Status make_live_directory(const std::string& live_dir);

}  // namespace dorajit::cache
