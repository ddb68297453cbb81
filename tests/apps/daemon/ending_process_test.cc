// Processes that end right after a call: what they had to say to the daemon reaches it.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <format>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "autotune/engine_factory.h"
#include "autotune/service/client/daemon_requests.h"
#include "runtime/compile/subprocess.h"
#include "tests/apps/daemon/running_daemon.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/fake_device.h"

namespace dorajit::tests {
namespace {

using autotune::DaemonRequests;
using std::chrono::milliseconds;

constexpr int kProcesses = 30;
constexpr auto kSlim = kernels::SpaceKind::kSlim;

std::string variable(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "";
}

// The program that the tests below run.
TEST(EndingProcess, DISABLED_AsksAndEnds) {
  Settings settings;
  settings.daemon_dir = variable("TEST_DAEMON_DIR");
  settings.cache_dir = variable("TEST_CACHE_DIR");
  settings.host_compiler = "none";
  auto parts = autotune::make_engine(settings);
  const auto answer = parts.engine->prepare(cpu_problem(stoi(variable("TEST_COLS"))), {});
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->launches) << "the daemon was not asked";
  const std::string end = variable("TEST_END");
  // As an interpreter does.
  if (end.starts_with("keeps")) static_cast<void>(parts.engine.release());
  if (end == "keeps and forks") {
    const pid_t child = ::fork();
    if (child == 0) ::exit(0);  // with the exit handlers of its parent
    EXPECT_EQ(cache::wait_for_child(child), 0);
  }
}

// Asks and launches also after the last messages were sent, and then destroys its requests.
TEST(EndingProcess, DISABLED_AsksAfterTheLastMessages) {
  static FakeDevice device{2};
  static std::unique_ptr<DaemonRequests> requests;
  static DaemonRequests::Launches launches;
  const auto ask_late = [] {
    *launches += 1000;
    (void)requests->ask(cpu_problem(65), device, kSlim, 1);
    requests.reset();
  };
  // What is registered last is called first, so this runs after the requests sent their last
  // messages.
  ASSERT_EQ(std::atexit(ask_late), 0);
  requests = std::make_unique<DaemonRequests>(
      variable("TEST_DAEMON_DIR"), autotune::protocol::own_hello(variable("TEST_CACHE_DIR")));
  launches = requests->ask(cpu_problem(64), device, kSlim, 1);
  ASSERT_TRUE(launches);
  *launches += 1000;
}

int asks_and_ends(const RunningDaemon& daemon, int cols, const std::string& end,
                  const std::string& program = "AsksAndEnds") {
  const auto run = compile::run_process(
      {"/usr/bin/env", "TEST_DAEMON_DIR=" + daemon.socket_folder(),
       "TEST_CACHE_DIR=" + daemon.cache_dir(), std::format("TEST_COLS={}", cols), "TEST_END=" + end,
       "ASAN_OPTIONS=detect_leaks=0", "TSAN_OPTIONS=report_thread_leaks=0",
       std::filesystem::read_symlink("/proc/self/exe").string(),
       "--gtest_filter=EndingProcess.DISABLED_" + program, "--gtest_also_run_disabled_tests"},
      std::chrono::seconds(60));
  if (!run) return -1;
  if (run->exit_code != 0) ADD_FAILURE() << run->output;
  return run->exit_code;
}

void expect_all_to_reach_the_daemon(const std::string& end) {
  const ScriptedDaemon daemon;
  PlainClient client(daemon);
  std::vector<std::thread> threads;
  for (int lane = 0; lane < 3; ++lane) {
    threads.emplace_back([&, lane] {
      for (int i = lane; i < kProcesses; i += 3) {
        EXPECT_EQ(asks_and_ends(daemon, 64 + i, end), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(becomes_true([&] { return client.status()["tuned"] == kProcesses; }));
}

TEST(EndingProcess, RequestIsSentWhenTheEngineIsDestroyed) {
  expect_all_to_reach_the_daemon("destroys its engine");
}

TEST(EndingProcess, RequestIsSentWhenTheEngineIsNeverDestroyed) {
  expect_all_to_reach_the_daemon("keeps its engine");
}

TEST(EndingProcess, LaunchCountsAreSent) {
  const ScriptedDaemon daemon("*) exec sleep 30 ;;");
  PlainClient client(daemon);
  FakeDevice device{2};
  {
    DaemonRequests requests(daemon.socket_folder(), daemon.hello());
    ASSERT_TRUE(requests.ask(cpu_problem(64), device, kSlim, 1));
    ASSERT_TRUE(becomes_true([&] { return client.status()["jobs_running"] == 1; }));
    const auto launches = requests.ask(cpu_problem(65), device, kSlim, 1);
    ASSERT_TRUE(launches);
    *launches += 1000;
  }
  EXPECT_TRUE(becomes_true([&] { return client.status()["queue"].size() == 2; }));
  EXPECT_TRUE(becomes_true([&] { return client.status()["queue"][1]["benefit"] > 0; }));
}

TEST(EndingProcess, LastMessagesAreSentOnce) {
  const ScriptedDaemon daemon("*) exec sleep 30 ;;");
  PlainClient client(daemon);
  EXPECT_EQ(asks_and_ends(daemon, 64, "", "AsksAfterTheLastMessages"), 0);
  ASSERT_TRUE(becomes_true([&] { return client.status()["clients"] == 1; }));
  // The question, and the message with the number of launches.
  EXPECT_EQ(client.status()["requests"], 2);
}

// More than its socket holds.
TEST(EndingProcess, StoppedDaemonDoesNotDelayTheEnd) {
  const ScriptedDaemon daemon;
  const PlainClient is_up(daemon);
  daemon.signal(SIGSTOP);
  FakeDevice device{2};
  auto requests = std::make_unique<DaemonRequests>(daemon.socket_folder(), daemon.hello());
  for (int i = 1; i <= 2'500; ++i) EXPECT_TRUE(requests->ask(cpu_problem(i), device, kSlim, 1));
  std::this_thread::sleep_for(milliseconds(500));  // it has sent what the socket takes
  requests.reset();                                // returns, although the daemon reads nothing
  daemon.signal(SIGCONT);
}

TEST(EndingProcess, RequestIsSentAfterAForkedChildEnds) {
  const ScriptedDaemon daemon;
  PlainClient client(daemon);
  EXPECT_EQ(asks_and_ends(daemon, 64, "keeps and forks"), 0);
  EXPECT_TRUE(becomes_true([&] { return client.status()["tuned"] == 1; }));
}

}  // namespace
}  // namespace dorajit::tests
