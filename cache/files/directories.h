// Folders of the cache.
#pragma once

#include <optional>
#include <string>

#include "cache/files/file_error.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {

// Makes `path` and what is missing above it, readable by nobody else (0700). A folder that is
// there already keeps its mode.
Status make_private_directories(const std::string& path, FilePlace place = FilePlace::kCacheFolder);

// Opens one folder where everybody may make some; nothing where there is none. An error where what
// has the name is no folder of this user's, is a symbolic link, or can be written by others,
// DORAJIT_TRUST_GROUP or not. The descriptor is that of the folder that was checked: whoever goes
// through it (held_path) is not led to one that takes its name later.
Result<std::optional<FileDescriptor>> open_own_directory(const std::string& path,
                                                         FilePlace place = FilePlace::kCacheFolder);

// The same, made first (0700) where it is missing.
Result<FileDescriptor> make_own_directory(const std::string& path,
                                          FilePlace place = FilePlace::kCacheFolder);

// An open folder, for calls that take a path: good as long as the descriptor is open.
std::string held_path(const FileDescriptor& folder);

// Whether this process may create files in `path`.
bool is_writable_directory(const std::string& path);

// Makes the last change of a name in `path` survive a power failure.
Status sync_directory(const std::string& path, FilePlace place = FilePlace::kCacheFolder);

// The folder of a file's path; "." for a bare name.
std::string parent_directory(const std::string& path);

}  // namespace dorajit::cache
