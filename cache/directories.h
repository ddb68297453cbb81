// Folders of the cache.
#pragma once

#include <string>

#include "cache/file_error.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

// Makes `path` and what is missing above it, readable by nobody else (0700). A folder that is
// there already keeps its mode.
Status make_private_directories(const std::string& path, FilePlace place = FilePlace::kCacheFolder);

// Makes one folder (0700) where everybody may make some. An error where what has the name is no
// folder of this user's, is a symbolic link, or can be written by others, DORAJIT_TRUST_GROUP or
// not.
Status make_own_directory(const std::string& path, FilePlace place = FilePlace::kCacheFolder);

// Whether this process may create files in `path`.
bool is_writable_directory(const std::string& path);

// Makes the last change of a name in `path` survive a power failure.
Status sync_directory(const std::string& path, FilePlace place = FilePlace::kCacheFolder);

// The folder of a file's path; "." for a bare name.
std::string parent_directory(const std::string& path);

}  // namespace dorajit::cache
