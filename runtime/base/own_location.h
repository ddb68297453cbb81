// Where the program or shared library that holds this code was loaded from.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace dorajit {

// Its folder as an absolute path; empty if unknown.
std::string folder_of_this_code();

// The owner of that file, whose code this process runs; nothing if unknown.
std::optional<uid_t> owner_of_this_code();

}  // namespace dorajit
