// The program dorajitd, with its own workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <format>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "autotune/service/daemon/worker_supervisor.h"
#include "autotune/service/protocol/socket_path.h"
#include "cache/database/tuning_store.h"
#include "runtime/compile/subprocess.h"
#include "tests/apps/daemon/running_daemon.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/small_disk.h"

namespace dorajit::tests {
namespace {

using namespace autotune::protocol;  // NOLINT(google-build-using-namespace): what this is about
using testing::HasSubstr;

std::string problem(std::int64_t cols) { return to_text(cpu_problem(cols)); }

TEST(DaemonProcess, ProblemIsTunedOnceForAllClients) {
  const RealDaemon daemon;
  std::vector<PlainClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.emplace_back(daemon);
    clients.back().send(cpu_request(96));
  }
  for (PlainClient& client : clients) EXPECT_EQ(client.expect<Tuned>().problem, problem(96));
  const auto status = clients[0].status();
  EXPECT_EQ(status["tuned"], 1);
  EXPECT_EQ(status["requests"], 5);
  EXPECT_EQ(status["clients"], 5);
  EXPECT_EQ(status["recent"][0]["problem"], problem(96));
  EXPECT_GT(status["recent"][0]["median_ns"], 0);
  EXPECT_GT(status["devices"][0]["tuning_seconds"], 0);
  const auto store = cache::TuningStore::open(daemon.cache_dir());
  EXPECT_TRUE(store->find_winner(cpu_fingerprint(), problem(96)));
}

TEST(DaemonProcess, ForgottenWinnerIsTunedAgain) {
  const RealDaemon daemon;
  PlainClient client(daemon);
  for (int i = 0; i < 2; ++i) {
    client.send(cpu_request(96));
    client.expect<Tuned>();
    const auto store = cache::TuningStore::open(daemon.cache_dir());
    EXPECT_TRUE(store->find_winner(cpu_fingerprint(), problem(96))) << "after " << i;
    const auto forgotten = store->forget(cpu_fingerprint(), problem(96));
    ASSERT_TRUE(forgotten) << forgotten.error().message;
  }
  EXPECT_EQ(client.status()["workers_started"], 1) << "both jobs are for the same worker";
}

TEST(DaemonProcess, FailureIsAnsweredWithItsReason) {
  RealDaemon daemon({}, false);
  daemon.set("DORAJIT_TUNE_SECONDS", "0");
  daemon.start();
  PlainClient client(daemon);
  client.send(cpu_request(96));
  EXPECT_EQ(client.expect<Failed>().reason, "it could not be tuned: DORAJIT_TUNE_SECONDS is 0");
}

TEST(DaemonProcess, WorkerEndsAfterItsDaemonWasKilled) {
  RealDaemon daemon;
  PlainClient client(daemon);
  client.send(cpu_request(96));
  client.expect<Tuned>();
  const int worker = client.status()["workers"][0]["pid"];
  EXPECT_GT(autotune::resident_bytes(worker), 0);
  daemon.signal(SIGKILL);
  daemon.wait();
  EXPECT_TRUE(becomes_true([&] { return autotune::resident_bytes(worker) == 0; }));
}

TEST(DaemonProcess, FailuresAreReportedToClients) {
  const RealDaemon daemon;
  PlainClient client(daemon);
  client.send(TuneRequest{.problem = "nonsense", .device = "gpu"});
  EXPECT_THAT(client.expect<Failed>().reason, HasSubstr("invalid problem key"));
  client.send(TuneRequest{.problem = problem(96), .device = ""});
  EXPECT_THAT(client.expect<Failed>().reason, HasSubstr("no device"));
  client.send(TuneRequest{.problem = problem(96), .device = "a device of elsewhere"});
  EXPECT_THAT(client.expect<Failed>().reason, HasSubstr("no such device"));
}

TEST(DaemonProcess, TooLargeSizesAreRefused) {
  const RealDaemon daemon;
  PlainClient client(daemon);
  const std::vector<std::string> absurd = {
      "compose/f32,f32,f32,f32/v1/c1/r62",          // 2^61 + 1 rows
      "compose/f32,f32,f32,f32/v1/c3/r62",          //
      "compose/f32,f32,f32,f32/v1/c268435456/r32",  // 2^32 x 2^28
      "compose/f32,f32,f32,f32/v1/c70368744177664/r0",
      "compose/f32,f32,f32,f32/v1/c9223372036854775807/r63",
      "compose/f32,f32,f32,f32/v1/c1/r64",
      "compose/f32,f32,f32,f32/v1/c1/r9223372036854775807",
      "compose/f32,f32,f32,f32/v1/c18446744073709551617/r3"};
  for (const std::string& key : absurd) {
    client.send(TuneRequest{.problem = key, .device = cpu_fingerprint()});
    const auto failed = client.expect<Failed>();
    EXPECT_EQ(failed.problem, key);
    EXPECT_THAT(failed.reason, HasSubstr("2^47 bytes"));
  }
  client.send(cpu_request(96));
  EXPECT_EQ(client.expect<Tuned>().problem, problem(96));
  const auto status = client.status();
  EXPECT_EQ(status["workers_lost"], 0);
  EXPECT_EQ(status["requests"], absurd.size() + 1);
}

TEST(DaemonProcess, ClosedStreamsAreNotReusedForFiles) {
  RealDaemon daemon({}, false);
  daemon.close_streams();
  daemon.start();
  PlainClient client(daemon);
  client.send(cpu_request(96));
  EXPECT_EQ(client.expect<Tuned>().problem, problem(96));
  for (int stream = 0; stream < 3; ++stream) {
    EXPECT_EQ(std::filesystem::read_symlink(std::format("/proc/{}/fd/{}", daemon.pid(), stream)),
              "/dev/null");
  }
}

TEST(DaemonProcess, SecondDaemonEndsAtOnce) {
  const RealDaemon first;
  PlainClient client(first);
  std::vector<std::string> second = {"/usr/bin/env", "DORAJIT_DAEMON_DIR=" + first.socket_folder()};
  for (const std::string& word : first.command()) second.push_back(word);
  const auto result = compile::run_process(second, std::chrono::seconds(60));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_THAT(result->output, HasSubstr("another daemon runs already"));
  EXPECT_EQ(client.status()["clients"], 1);
}

TEST(DaemonProcess, FullDiskIsReportedToClients) {
  RealDaemon daemon({}, false);
  std::filesystem::create_directory(daemon.cache_dir());
  const bool can_mount = cache::run_in_child([&] {
                           return cache::mount_small_disk(daemon.cache_dir(), "64k") ? 0 : 1;
                         }) == 0;
  if (!can_mount) GTEST_SKIP() << "file systems cannot be mounted here";
  daemon.set_disk("1m");
  daemon.start();
  PlainClient client(daemon);
  std::ofstream("/proc/" + std::to_string(daemon.pid()) + "/root" + daemon.cache_dir() + "/filler")
      << std::string(2 << 20, 'x');
  for (int i = 0; i < 2; ++i) {
    client.send(cpu_request(96 + i));
    EXPECT_THAT(client.expect<Failed>().reason, HasSubstr("winners cannot be kept"));
  }
  EXPECT_EQ(client.status()["failed"], 2);
}

TEST(DaemonProcess, DrainFinishesRunningJobs) {
  RealDaemon daemon;
  PlainClient client(daemon);
  client.send(cpu_request(96));
  EXPECT_EQ(client.status()["jobs_running"], 1);
  daemon.signal(SIGTERM);
  EXPECT_EQ(client.expect<Tuned>().problem, problem(96));
  EXPECT_EQ(daemon.wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(socket_path(daemon.socket_folder())));
}

TEST(DaemonProcess, ClockJumpsDoNotMatter) {
  RealDaemon daemon({"--idle-exit", "600"}, false);
  const std::string clock = daemon.folder() + "/seconds";
  daemon.set("LD_PRELOAD", DORAJIT_JUMPING_CLOCK);
  daemon.set("JUMPING_CLOCK", clock);
  daemon.start();
  PlainClient client(daemon);
  const std::int64_t today = std::chrono::duration_cast<std::chrono::seconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count();
  constexpr std::int64_t kMonth = std::int64_t{30} * 86400;
  std::int64_t cols = 96;
  for (const std::int64_t jump : {std::int64_t{0}, 12 * kMonth, -12 * kMonth}) {
    std::ofstream(clock) << jump;
    client.send(cpu_request(cols));
    EXPECT_EQ(client.expect<Tuned>().problem, problem(cols));
    const auto winner =
        cache::TuningStore::open(daemon.cache_dir())->find_winner(cpu_fingerprint(), problem(cols));
    ASSERT_TRUE(winner);
    EXPECT_NEAR(static_cast<double>(winner->created_unix_s), static_cast<double>(today + jump),
                86400)
        << "the daemon's clock did not jump";
    ++cols;
  }
  const auto status = client.status();
  EXPECT_EQ(status["tuned"], 3);
  EXPECT_EQ(status["workers_lost"], 0);
  for (const auto& recent : status["recent"]) {
    EXPECT_LT(std::abs(recent["age_seconds"].get<double>()), 3600) << recent;
  }
}

TEST(DaemonProcess, IdleDaemonEnds) {
  RealDaemon daemon({"--idle-exit", "0.5"});
  EXPECT_EQ(daemon.wait(), 0);
}

}  // namespace
}  // namespace dorajit::tests
