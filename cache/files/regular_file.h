// Reads a file that may not be a regular file.
#pragma once

#include <sys/types.h>

#include <string>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {

// Empty if it is not a regular file or has more than `max_bytes`: reading a FIFO may never end, and
// a file may be larger than memory. `path` is for messages.
Result<std::string> read_regular_file(const FileDescriptor& file, const std::string& path,
                                      off_t max_bytes);

}  // namespace dorajit::cache
