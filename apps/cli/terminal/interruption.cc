#include "apps/cli/terminal/interruption.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <thread>

#include "runtime/base/unfinished_files.h"

namespace dorajit::cli {
namespace {

std::array<int, 2> pipe_ends = {-1, -1};

// A signal handler must not delete files, as the bookkeeping takes a lock: a thread does it.
extern "C" void wake_watcher(int signal) {
  const int kept = errno;
  const auto byte = static_cast<unsigned char>(signal);
  (void)!::write(pipe_ends[1], &byte, 1);
  errno = kept;
}

void watch() {
  unsigned char byte = 0;
  while (::read(pipe_ends[0], &byte, 1) != 1) {
    if (errno != EINTR) return;
  }
  UnfinishedFiles::of_this_process().delete_all_and_stop();
  ::signal(byte, SIG_DFL);
  ::kill(::getpid(), byte);
}

}  // namespace

void clean_up_when_interrupted() {
  if (::pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return;
  try {
    std::thread(watch).detach();
  } catch (const std::system_error&) {
    return;  // signals end the process at once; its temporary files are removed an hour later
  }
  UnfinishedFiles::of_this_process().start_noting();
  struct sigaction action{};
  action.sa_handler = wake_watcher;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    if (::sigaction(signal, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace dorajit::cli
