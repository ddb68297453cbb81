// Folders of the cache, and file system errors with remedies for the user.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {

// Prefix of paths through the descriptor of an open folder.
inline constexpr std::string_view kHeldFolders = "/proc/self/fd/";

// For a path through a descriptor, the folder's real path; other paths unchanged.
std::string shown_path(std::string_view path);

// Which setting determines where a file is.
enum class FilePlace {
  kCacheFolder,   // DORAJIT_CACHE_DIR
  kDatabases,     // DORAJIT_DATABASES
  kDaemonFolder,  // DORAJIT_DAEMON_DIR
  kNamed,         // named directly, by an option for instance
};

// How to choose another place: "set DORAJIT_CACHE_DIR to a folder with room".
std::string choice_of(FilePlace place, std::string_view folder);

// The remedy for an errno value of such a file: "free space there or set DORAJIT_CACHE_DIR ...".
std::string remedy(int error_number, FilePlace place = FilePlace::kCacheFolder);

// kIoError reading "cannot <action> <path>: <reason>; <remedy>".
Error file_error(std::string_view action, std::string_view path, int error_number,
                 FilePlace place = FilePlace::kCacheFolder);

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
