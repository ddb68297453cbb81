#include "autotune/service/protocol/socket_path.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <format>
#include <system_error>

#include "cache/files/directories.h"
#include "runtime/base/files.h"
#include "runtime/base/settings.h"

namespace dorajit::autotune::protocol {
namespace {

constexpr std::size_t kMaxPathBytes = sizeof(sockaddr_un{}.sun_path) - 1;

}  // namespace

std::string socket_folder(const std::string& asked) {
  if (!asked.empty()) return asked;
  if (const auto runtime = environment_variable("XDG_RUNTIME_DIR"); runtime.starts_with('/')) {
    return std::format("{}/dorajit", runtime);
  }
  const std::string users = std::format("/run/user/{}", ::geteuid());
  if (std::error_code error; std::filesystem::is_directory(users, error)) return users + "/dorajit";
  return std::format("/tmp/dorajit-daemon-{}", ::geteuid());
}

std::string socket_path(const std::string& folder) { return folder + "/dorajitd.sock"; }

std::string leader_lock_path(const std::string& folder) { return folder + "/dorajitd.lock"; }

Status check_socket_path(const std::string& path) {
  if (path.size() <= kMaxPathBytes) return {};
  return fail(StatusCode::kInvalidArgument,
              std::format("the socket's path {} has {} bytes, but the system allows {}; set "
                          "DORAJIT_DAEMON_DIR to a shorter folder",
                          path, path.size(), kMaxPathBytes));
}

Result<FileDescriptor> make_socket_folder(const std::string& folder) {
  DORAJIT_ASSIGN(FileDescriptor opened,
                 cache::make_own_directory(folder, cache::FilePlace::kDaemonFolder));
  if (::fchmod(opened.get(), S_IRWXU) == 0) return opened;
  return fail(StatusCode::kIoError, std::format("cannot remove other users' access to {}: {}",
                                                folder, std::strerror(errno)));
}

bool is_peer_this_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && is_this_user(peer.uid);
}

}  // namespace dorajit::autotune::protocol
