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

// What to do about an errno value of a cache file: "free space or set DORAJIT_CACHE_DIR ...".
std::string_view remedy(int error_number);

// kIoError reading "cannot <action> <path>: <reason>; <remedy>".
Error file_error(std::string_view action, std::string_view path, int error_number);

}  // namespace dorajit::cache
