// Where the program or shared library that holds this code was loaded from.
#pragma once

#include <string>

namespace dorajit {

// Its folder, an absolute path; empty where that cannot be told.
std::string folder_of_this_code();

}  // namespace dorajit
