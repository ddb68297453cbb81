#include "apps/daemon/inherited_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "runtime/base/settings.h"

namespace dorajit::daemon {
namespace {

constexpr int kFirst = 3;  // as sd_listen_fds(3) has it

bool is_listening_unix_socket(int descriptor) {
  int domain = 0;
  int listens = 0;
  socklen_t size = sizeof(int);
  return ::getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         domain == AF_UNIX &&
         ::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

}  // namespace

int inherited_socket() {
  const bool is_for_us = environment_variable("LISTEN_PID") == std::to_string(::getpid()) &&
                         environment_variable("LISTEN_FDS") == "1" &&
                         is_listening_unix_socket(kFirst);
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(name);
  if (!is_for_us) return -1;
  ::fcntl(kFirst, F_SETFD, FD_CLOEXEC);
  return kFirst;
}

}  // namespace dorajit::daemon
