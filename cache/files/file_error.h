// File system errors with remedies for the user.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.h"

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

}  // namespace dorajit::cache
