// The location of the daemon's socket and log.
#pragma once

#include <string>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::autotune::protocol {

// The folder of the socket: `asked` (from the settings), or, if that is empty,
// $XDG_RUNTIME_DIR/dorajit, else /run/user/<user id>/dorajit if /run/user/<user id> exists, else
// dorajit-daemon-<user id> in /tmp. Absolute.
std::string socket_folder(const std::string& asked);

std::string socket_path(const std::string& folder);
std::string leader_lock_path(const std::string& folder);

// Whether the path of a socket fits the system's limit; the error suggests a shorter folder.
Status check_socket_path(const std::string& path);

// The log of a daemon in the background, in the folder of the tuning database.
inline constexpr const char* kLogName = "dorajitd.log";

// Creates the folder with mode 0700 and opens it (cache/files/directories.h). An error if it does
// not belong to this user alone.
Result<FileDescriptor> make_socket_folder(const std::string& folder);

// Whether the process at the other end of a connected Unix socket runs as this user.
bool is_peer_this_user(int socket);

}  // namespace dorajit::autotune::protocol
