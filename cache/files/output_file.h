// Output files that a user named, outside of the cache folder. Their folders may belong to others.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {

// Atomically replaces the file at `path` with the bytes. Symbolic links are kept and their target
// is replaced, but links of other users than this one and root are refused. A replaced file of this
// user passes on its mode and group, one of another user at most its mode. If `path` is not a
// regular file, such as a pipe or a device, the bytes are written into it.
Status write_output_file(const std::string& path, std::string_view bytes);

// Opens the file at `path` under the same rules, without waiting if it is a pipe; creates it if it
// is missing.
Result<FileDescriptor> open_for_appending(const std::string& path);

}  // namespace dorajit::cache
