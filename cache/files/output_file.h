// Files that a user asked for by name, outside of the cache folder.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace dorajit::cache {

// Puts the bytes in the place of what is at `path`, whole or not at all; a symbolic link there goes
// on pointing to them. What is no regular file there, such as a pipe or a device, they are written
// into. The error of a folder that is not there or cannot be written says so.
Status write_output_file(const std::string& path, std::string_view bytes);

// Gives a file that is to be published the mode of any new file: what the umask leaves of 0666.
void give_usual_mode(const std::string& path);

}  // namespace dorajit::cache
