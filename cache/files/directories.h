// Creates, opens and syncs folders of the cache.
#pragma once

#include <optional>
#include <string>

#include "cache/files/file_error.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {

// Creates `path` and its missing parents with mode 0700. An existing folder keeps its mode.
Status make_private_directories(const std::string& path, FilePlace place = FilePlace::kCacheFolder);

// Opens a folder in a place where every user may create folders; nothing if it does not exist. An
// error if the name is not a folder of this user, is a symbolic link, or is writable by others,
// regardless of DORAJIT_TRUST_GROUP. The descriptor refers to the checked folder: access through it
// (held_path) cannot reach a folder that takes its name later.
Result<std::optional<FileDescriptor>> open_own_directory(const std::string& path,
                                                         FilePlace place = FilePlace::kCacheFolder);

// The same, but creates the folder (0700) if it is missing.
Result<FileDescriptor> make_own_directory(const std::string& path,
                                          FilePlace place = FilePlace::kCacheFolder);

// A path to an open folder, valid as long as the descriptor is open.
std::string held_path(const FileDescriptor& folder);

// Whether this process may create files in `path`.
bool is_writable_directory(const std::string& path);

// Makes the last change of a name in `path` durable.
Status sync_directory(const std::string& path, FilePlace place = FilePlace::kCacheFolder);

// The folder of a file's path; "." for a bare name.
std::string parent_directory(const std::string& path);

// `cache_dir`, unless it is on a network file system, where locks are not reliable, and writable:
// then a local folder, the same for every process of this user; empty if there is none. Creates
// nothing.
std::string live_directory(const std::string& cache_dir);

// Creates that local folder and its parent. Only this user may own or write them, because they are
// in a place where every user may create folders.
Status make_live_directory(const std::string& live_dir);

}  // namespace dorajit::cache
