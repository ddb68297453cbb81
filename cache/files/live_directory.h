// Where the files live that processes lock, when the cache folder is on a network file system.
#pragma once

#include <string>

#include "runtime/base/error.h"

namespace dorajit::cache {

// `cache_dir`, unless it is on a network file system, where locks cannot be trusted, and can be
// written: then a folder of this machine, the same for every process of this user; empty where
// there can be none. Makes nothing.
std::string live_directory(const std::string& cache_dir);

// Makes that folder of this machine and the one above it, which nobody but this user may own or
// write: they lie where everybody may make folders.
Status make_live_directory(const std::string& live_dir);

}  // namespace dorajit::cache
