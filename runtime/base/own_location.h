// Where the program or shared library that holds this code was loaded from.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace dorajit {

// Its folder, an absolute path; empty where that cannot be told.
std::string folder_of_this_code();

// Who owns that file, whose code this process runs; nothing where that cannot be told.
std::optional<uid_t> owner_of_this_code();

}  // namespace dorajit
