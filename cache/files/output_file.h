// Output files that a user named, outside of the cache folder.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace dorajit::cache {

// Atomically replaces the file at `path` with the bytes; a symbolic link is kept and its target
// replaced. If `path` is not a regular file, such as a pipe or a device, the bytes are written into
// it. If the folder is missing or not writable, the error says so.
Status write_output_file(const std::string& path, std::string_view bytes);

// Gives a file that will be published the mode of any new file: 0666 without the umask.
void give_usual_mode(const std::string& path);

}  // namespace dorajit::cache
