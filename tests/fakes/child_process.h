// Runs work in child processes.
#pragma once

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

namespace dorajit::cache {

inline constexpr int kChildSkips = 77;

// Ends the child's body with a failure; gtest's assertions would report into a copy of the test.
#define CHILD_CHECK(condition)                                                    \
  do {                                                                            \
    if (!(condition)) {                                                           \
      std::fprintf(stderr, "%s:%d: child: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                   \
    }                                                                             \
  } while (false)

class Pipe {
 public:
  Pipe() {
    if (::pipe(ends_.data()) != 0) std::abort();
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  // False at the end of the stream.
  [[nodiscard]] bool receive(char& byte) const { return ::read(ends_[0], &byte, 1) == 1; }
  void send(char byte) const {
    if (::write(ends_[1], &byte, 1) != 1) std::abort();
  }
  void close_read() { close_end(0); }
  void close_write() { close_end(1); }

 private:
  void close_end(std::size_t i) {
    if (const int end = std::exchange(ends_[i], -1); end >= 0) ::close(end);
  }
  std::array<int, 2> ends_{};
};

inline pid_t start_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  // Without exit handlers, because the child shares the test's buffers and reports.
  if (child == 0) ::_exit(body());
  return child;
}

// The exit status, or 128 + the signal that ended the child.
inline int wait_for_child(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline int run_in_child(const std::function<int()>& body) {
  return wait_for_child(start_child(body));
}

// Runs body(0) .. body(count - 1) in processes that start at the same time.
inline void run_at_once(int count, const std::function<int(int)>& body) {
  Pipe start;
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(start_child([&] {
      start.close_write();
      char byte = 0;
      (void)start.receive(byte);
      return body(i);
    }));
  }
  start.close_write();
  for (const pid_t child : children) EXPECT_EQ(wait_for_child(child), 0);
}

// For tests of file modes, which do not apply to root.
inline bool drop_root() {
  if (::geteuid() != 0) return true;
  constexpr unsigned kNobody = 65534;
  return ::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
         ::setresuid(kNobody, kNobody, kNobody) == 0;
}

}  // namespace dorajit::cache
