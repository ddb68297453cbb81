// Errors of the file system, worded for the person who can do something about them.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace dorajit::cache {

// Paths of this process that lead through the descriptor of an open folder.
inline constexpr std::string_view kHeldFolders = "/proc/self/fd/";

// Such a path as people know it; any other as it is.
std::string shown_path(std::string_view path);

// Who said where a file is.
enum class FilePlace {
  kCacheFolder,   // DORAJIT_CACHE_DIR
  kDatabases,     // DORAJIT_DATABASES
  kDaemonFolder,  // DORAJIT_DAEMON_DIR
  kNamed,         // whoever named the file itself, by an option for instance
};

// How to have another place instead: "set DORAJIT_CACHE_DIR to a folder with room".
std::string choice_of(FilePlace place, std::string_view folder);

// What to do about an errno value of such a file: "free space there or set DORAJIT_CACHE_DIR ...".
std::string remedy(int error_number, FilePlace place = FilePlace::kCacheFolder);

// kIoError reading "cannot <action> <path>: <reason>; <remedy>".
Error file_error(std::string_view action, std::string_view path, int error_number,
                 FilePlace place = FilePlace::kCacheFolder);

}  // namespace dorajit::cache
