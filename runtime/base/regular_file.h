// Reads files that a user or the environment names.
#pragma once

#include <cstddef>
#include <expected>
#include <string>

namespace dorajit {

// The bytes, or why they cannot be read: "it is not a regular file". Links are followed. Devices,
// FIFOs and sockets are refused without being waited for, since reading them may block or never
// end; so are files of more than `max_bytes`, also those whose size is not known before.
std::expected<std::string, std::string> read_regular_file(const std::string& path,
                                                          std::size_t max_bytes);

// At most the first `max_bytes` of such a file.
std::expected<std::string, std::string> read_file_start(const std::string& path,
                                                        std::size_t max_bytes);

}  // namespace dorajit
