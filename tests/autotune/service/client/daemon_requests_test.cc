// The daemon's client: no behaviour of the daemon may cost more than the winner.
#include "autotune/service/client/daemon_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "autotune/service/protocol/socket_path.h"
#include "kernel_templates/sizes.h"
#include "runtime/base/log.h"
#include "tests/apps/daemon/running_daemon.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/fake_device.h"

namespace dorajit::tests {
namespace {

using namespace autotune::protocol;  // NOLINT(google-build-using-namespace): what this is about
using autotune::DaemonRequests;

constexpr auto kSlim = kernels::SpaceKind::kSlim;

// The winners that the listener received.
class Winners {
 public:
  void listen_to(DaemonRequests& requests) {
    requests.set_listener([this](const launch::Problem& problem, device::Device&) {
      const std::scoped_lock lock(mutex_);
      cols_.insert(problem.key[kernels::kCols]);
    });
  }
  bool have(std::int64_t cols) {
    const std::scoped_lock lock(mutex_);
    return cols_.contains(cols);
  }

 private:
  std::mutex mutex_;
  std::set<std::int64_t> cols_;  // under mutex_
};

// A server in place of the daemon, which runs a script with each client.
class FakeServer {
 public:
  using Deed = std::function<void(int socket)>;
  explicit FakeServer(Deed deed) : deed_(std::move(deed)) {
    std::string pattern = "/tmp/dorajitd.XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = socket_path(folder_);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    listener_ = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    std::filesystem::remove_all(folder_);
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] int visits() const { return visits_; }

 private:
  void serve() {
    for (;;) {
      const FileDescriptor socket(::accept(listener_.get(), nullptr, nullptr));
      if (!socket) return;
      deed_(socket.get());
      ++visits_;
    }
  }

  Deed deed_;
  std::string folder_;
  FileDescriptor listener_;
  std::atomic<int> visits_ = 0;
  std::thread thread_;
};

void say(int socket, const std::string& bytes) {
  (void)!::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

std::string hear(int socket) {
  char bytes[4096];
  const ssize_t got = ::recv(socket, bytes, sizeof bytes, 0);
  return {bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

const Hello kHello{.release = "1", .tuning_dir = "/kept"};

TEST(DaemonRequestsThread, ListenerIsCalledOncePerWinner) {
  const ScriptedDaemon daemon;
  const PlainClient is_up(daemon);
  FakeDevice device{2};
  DaemonRequests requests(daemon.socket_folder(), daemon.hello());
  Winners winners;
  winners.listen_to(requests);
  for (const std::int64_t cols : {64, 96, 64}) {
    EXPECT_TRUE(requests.ask(cpu_problem(cols), device, kSlim, 1));
  }
  EXPECT_TRUE(becomes_true([&] { return winners.have(64) && winners.have(96); }));
  PlainClient client(daemon);
  EXPECT_EQ(client.status()["requests"], 2);
}

TEST(DaemonRequestsThread, WithoutADaemonNothingIsRequested) {
  FakeDevice device{2};
  DaemonRequests requests("/nowhere", kHello);
  EXPECT_FALSE(requests.ask(cpu_problem(64), device, kSlim, 1));
}

TEST(DaemonRequestsThread, RequestsAreRepeatedAfterTheDaemonWasKilled) {
  ScriptedDaemon daemon("*/c666/*) exec sleep 30 ;;");
  const auto are_asked = [&] { return PlainClient(daemon).status()["requests"] == 2; };
  EXPECT_FALSE(are_asked());
  FakeDevice device{2};
  DaemonRequests requests(daemon.socket_folder(), daemon.hello());
  Winners winners;
  winners.listen_to(requests);
  ASSERT_TRUE(requests.ask(cpu_problem(666), device, kSlim, 1));
  ASSERT_TRUE(requests.ask(cpu_problem(96), device, kSlim, 0.5));
  ASSERT_TRUE(becomes_true(are_asked));
  daemon.signal(SIGKILL);
  daemon.wait();
  EXPECT_TRUE(requests.ask(cpu_problem(96), device, kSlim, 1)) << "it was requested before";
  daemon.start();
  EXPECT_TRUE(becomes_true(are_asked));
}

TEST(DaemonRequestsThread, LaunchCountsAreSentToTheDaemon) {
  const ScriptedDaemon daemon("*) exec sleep 30 ;;");
  PlainClient client(daemon);
  FakeDevice device{2};
  DaemonRequests requests(daemon.socket_folder(), daemon.hello());
  ASSERT_TRUE(requests.ask(cpu_problem(1000), device, kSlim, 1));
  ASSERT_TRUE(becomes_true([&] { return client.status()["jobs_running"] == 1; }));
  ASSERT_TRUE(requests.ask(cpu_problem(900), device, kSlim, 1));
  const auto launches = requests.ask(cpu_problem(10), device, kSlim, 1);
  ASSERT_TRUE(launches);
  *launches += 1000;
  EXPECT_TRUE(becomes_true(
      [&] { return client.status()["queue"][1]["problem"] == to_text(cpu_problem(10)); }));
  EXPECT_EQ(client.status()["queue"][2]["problem"], to_text(cpu_problem(900)));
}

TEST(DaemonRequestsThread, MismatchedDaemonIsNeverAsked) {
  const ScriptedDaemon daemon;
  const PlainClient is_up(daemon);
  FakeDevice device{2};
  Hello other_folder = daemon.hello();
  other_folder.tuning_dir = "/elsewhere";
  Hello other_release = daemon.hello();
  other_release.release = "0.0.0";
  DaemonRequests elsewhere(daemon.socket_folder(), other_folder);
  DaemonRequests other(daemon.socket_folder(), other_release);
  // A later request would already have been answered.
  EXPECT_EQ(PlainClient(daemon).status()["requests"], 0);
  EXPECT_FALSE(elsewhere.ask(cpu_problem(64), device, kSlim, 1));
  EXPECT_FALSE(other.ask(cpu_problem(64), device, kSlim, 1));
}

TEST(DaemonRequestsThread, InvalidAnswersReportNoWinner) {
  const std::string hello = to_line(Answer(kHello));
  Hello other_release = kHello;
  other_release.release = "2";
  Hello other_folder = kHello;
  other_folder.tuning_dir = "/elsewhere";
  const std::string deeds[] = {"nonsense\n",
                               std::string(200'000, 'x'),
                               hello + hello,
                               to_line(Answer(other_release)),
                               to_line(Answer(other_folder)),
                               to_line(Answer(Refused{"no"})),
                               to_line(Answer(Tuned{.problem = "p", .device = "d"})),
                               hello + "{\"type\":\"tuned\",",
                               hello + to_line(Answer(Tuned{.problem = "p", .device = "d"})),
                               std::string(1, '\0')};
  for (const std::string& bytes : deeds) {
    const FakeServer server([&](int socket) {
      hear(socket);
      say(socket, bytes);
    });
    FakeDevice device{2};
    DaemonRequests requests(server.folder(), kHello);
    Winners winners;
    winners.listen_to(requests);
    (void)requests.ask(cpu_problem(64), device, kSlim, 1);
    EXPECT_TRUE(becomes_true([&] { return server.visits() > 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(winners.have(64));
  }
}

TEST(DaemonRequestsThread, FolderWritableByOthersIsNotUsed) {
  const FakeServer server([](int socket) {
    hear(socket);
    say(socket, to_line(Answer(kHello)));
    while (!hear(socket).empty()) {
    }
  });
  FakeDevice device{2};
  const auto is_asked_in = [&](const std::string& folder) {
    return DaemonRequests(folder, kHello).ask(cpu_problem(64), device, kSlim, 1) != nullptr;
  };
  EXPECT_TRUE(is_asked_in(server.folder()));
  ASSERT_TRUE(becomes_true([&] { return server.visits() == 1; }));
  const std::string link = server.folder() + "/link";
  std::filesystem::create_symlink(server.folder(), link);
  EXPECT_FALSE(is_asked_in(link));
  for (const mode_t mode : {0720, 0702}) {
    ASSERT_EQ(::chmod(server.folder().c_str(), mode), 0);
    EXPECT_FALSE(is_asked_in(server.folder()));
  }
  ASSERT_EQ(::chmod(server.folder().c_str(), 0700), 0);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(server.folder().c_str(), 65534, 65534), 0);
    EXPECT_FALSE(is_asked_in(server.folder()));
  }
  EXPECT_EQ(server.visits(), 1);
}

TEST(DaemonRequestsThread, AnswersToUnsentRequestsAreIgnored) {
  FakeDevice device{2};
  const std::string text = to_text(cpu_problem(64));
  const std::string fingerprint = device.info().fingerprint;
  const FakeServer server([&](int socket) {
    hear(socket);
    std::string lies = to_line(Answer(kHello));
    for (int i = 0; i < 3; ++i) {
      lies += to_line(Answer(Tuned{.problem = to_text(cpu_problem(65)), .device = fingerprint}));
      lies += to_line(Answer(Tuned{.problem = text, .device = fingerprint}));
    }
    say(socket, lies);
    hear(socket);
  });
  std::atomic<int> told = 0;
  {
    DaemonRequests requests(server.folder(), kHello);
    requests.set_listener([&](const launch::Problem& problem, device::Device&) {
      EXPECT_EQ(problem.key[kernels::kCols], 64);
      ++told;
    });
    ASSERT_TRUE(requests.ask(cpu_problem(64), device, kSlim, 1));
    EXPECT_TRUE(becomes_true([&] { return told > 0; }));
  }
  EXPECT_EQ(told, 1);
}

// A log that blocks until it is released.
class SlowLog {
 public:
  SlowLog() {
    set_log_level(LogLevel::kInfo);
    set_log_sink(
        [](LogLevel, std::string_view, void* context) {
          auto* self = static_cast<SlowLog*>(context);
          self->is_busy_ = true;
          while (!self->may_go_on_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        this);
  }
  ~SlowLog() {
    let_go();
    set_log_sink(nullptr, nullptr);
    set_log_level(LogLevel::kWarning);
  }
  SlowLog(const SlowLog&) = delete;
  SlowLog& operator=(const SlowLog&) = delete;

  void let_go() { may_go_on_ = true; }
  [[nodiscard]] bool is_busy() const { return is_busy_; }

 private:
  std::atomic<bool> is_busy_ = false;
  std::atomic<bool> may_go_on_ = false;
};

TEST(DaemonRequestsThread, BlockedLogDelaysNoRequestForTheCaller) {
  FakeDevice device{2};
  const std::string failed =
      to_line(Answer(kHello)) + to_line(Answer(Failed{.problem = to_text(cpu_problem(64)),
                                                      .device = device.info().fingerprint,
                                                      .reason = "slow log"}));
  std::mutex mutex;
  std::string heard;
  const auto has_heard = [&](std::int64_t cols) {
    const std::scoped_lock lock(mutex);
    return heard.contains(to_text(cpu_problem(cols)));
  };
  const FakeServer server([&](int socket) {
    bool has_answered = false;
    for (std::string bytes = hear(socket); !bytes.empty(); bytes = hear(socket)) {
      const std::scoped_lock lock(mutex);
      heard += bytes;
      if (has_answered || !heard.contains(to_text(cpu_problem(64)))) continue;
      say(socket, failed);
      has_answered = true;
    }
  });
  DaemonRequests requests(server.folder(), kHello);
  SlowLog log;
  ASSERT_TRUE(requests.ask(cpu_problem(64), device, kSlim, 1));
  ASSERT_TRUE(becomes_true([&] { return log.is_busy(); }));
  ASSERT_TRUE(requests.ask(cpu_problem(65), device, kSlim, 1));
  EXPECT_FALSE(has_heard(65));
  log.let_go();
  EXPECT_TRUE(becomes_true([&] { return has_heard(65); }));
}

TEST(DaemonRequestsThread, RequestsMadeWhileTheListenerRunsAreSentAfterIt) {
  const ScriptedDaemon daemon;
  PlainClient client(daemon);
  FakeDevice device{2};
  std::atomic<bool> is_called = false;
  std::atomic<bool> may_go_on = false;
  DaemonRequests requests(daemon.socket_folder(), daemon.hello());
  requests.set_listener([&](const launch::Problem&, device::Device&) {
    is_called = true;
    while (!may_go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  ASSERT_TRUE(requests.ask(cpu_problem(64), device, kSlim, 1));
  ASSERT_TRUE(becomes_true([&] { return is_called.load(); }));
  ASSERT_TRUE(requests.ask(cpu_problem(65), device, kSlim, 1));
  may_go_on = true;
  requests.close();
  EXPECT_TRUE(becomes_true([&] { return client.status()["tuned"] == 2; }));
}

TEST(DaemonRequestsThread, ForkedChildHasNoDaemonAndExitsCleanly) {
  const ScriptedDaemon daemon;
  const PlainClient is_up(daemon);
  FakeDevice device{2};
  auto requests = std::make_unique<DaemonRequests>(daemon.socket_folder(), daemon.hello());
  ASSERT_TRUE(requests->ask(cpu_problem(64), device, kSlim, 1));
  EXPECT_EQ(cache::run_in_child([&] {
              CHILD_CHECK(!requests->ask(cpu_problem(65), device, kSlim, 1));
              requests.reset();
              return 0;
            }),
            0);
  EXPECT_TRUE(requests->ask(cpu_problem(66), device, kSlim, 1));
}

void ask_often(DaemonRequests& requests, device::Device& device) {
  for (int i = 1; i <= 301; ++i) EXPECT_TRUE(requests.ask(cpu_problem(i), device, kSlim, 1));
}

// If it did, it would wait until the server is told to read, which is after the last request.
TEST(DaemonRequestsThread, AskDoesNotWaitForTheDaemon) {
  FakeDevice device{2};
  {
    const ScriptedDaemon daemon;
    const PlainClient is_up(daemon);
    daemon.signal(SIGSTOP);
    DaemonRequests requests(daemon.socket_folder(), daemon.hello());
    ask_often(requests, device);
    daemon.signal(SIGCONT);
  }
  {
    std::atomic<bool> may_read = false;
    const FakeServer server([&](int socket) {
      while (!may_read) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      while (!hear(socket).empty()) {
      }
    });
    DaemonRequests requests(server.folder(), kHello);
    ask_often(requests, device);
    may_read = true;
  }
}

}  // namespace
}  // namespace dorajit::tests
