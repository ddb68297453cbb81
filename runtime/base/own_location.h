// Where the program or shared library that holds this code was loaded from.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace dorajit {

// Its folder as an absolute path; empty if unknown.
std::string folder_of_this_code();

// A file or folder in the prefix that this code is installed in: a folder that contains its folder,
// up to four levels above. Empty if there is none.
std::string installed_file(std::string_view name);

// The owner of that file, whose code this process runs; nothing if unknown.
std::optional<uid_t> owner_of_this_code();

}  // namespace dorajit
