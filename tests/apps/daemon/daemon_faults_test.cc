// What workers and clients may do to the daemon, and what it then does for the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "autotune/service/daemon/worker_supervisor.h"
#include "autotune/service/protocol/socket_path.h"
#include "tests/apps/daemon/running_daemon.h"
#include "tests/fakes/child_process.h"

namespace dorajit::tests {
namespace {

using namespace autotune::protocol;  // NOLINT(google-build-using-namespace): what this is about
using testing::HasSubstr;

constexpr std::int64_t kBadCols = 666;

// Sends what the script spoils and then something good, which must be tuned. What came of the bad.
Failed fate_of_bad_job(const RunningDaemon& daemon) {
  PlainClient client(daemon);
  PlainClient other(daemon);
  client.send(cpu_request(kBadCols));
  other.send(cpu_request(96));
  auto failed = client.expect<Failed>();
  EXPECT_EQ(other.expect<Tuned>().problem, cpu_request(96).problem);
  return failed;
}

TEST(DaemonFaultsProcess, JobFailsAfterRepeatedWorkerCrashes) {
  const ScriptedDaemon daemon("*/c666/*) kill -SEGV $$ ;;");
  EXPECT_THAT(fate_of_bad_job(daemon).reason, HasSubstr("was ended by signal 11"));
  PlainClient client(daemon);
  EXPECT_EQ(client.status()["workers_lost"], 4);
}

TEST(DaemonFaultsProcess, AnswerOfAnEndedWorkerCounts) {
  const ScriptedDaemon daemon(
      "*/c666/*) echo \"${line%?},\\\"reason\\\":\\\"spent\\\"}\" | "
      "sed 's/\"tune\"/\"failed\"/'; exit 3 ;;");
  EXPECT_EQ(fate_of_bad_job(daemon).reason, "spent");
}

TEST(DaemonFaultsProcess, HangingWorkerIsReplaced) {
  auto rules = ScriptedDaemon::quick_rules();
  rules.time_limit = std::chrono::milliseconds(600);
  const ScriptedDaemon daemon("*/c666/*) exec sleep 1000 ;;", rules);
  EXPECT_THAT(fate_of_bad_job(daemon).reason, HasSubstr("took longer than 600 ms"));
}

TEST(DaemonFaultsProcess, MemoryHungryWorkerIsEnded) {
  auto rules = ScriptedDaemon::quick_rules();
  rules.max_bytes = std::int64_t{64} << 20;
  const ScriptedDaemon daemon(
      "*/c666/*) x=0123456789abcdef; while :; do "
      "[ ${#x} -gt 100000000 ] && sleep 0.1 || x=$x$x; done ;;",
      rules);
  EXPECT_THAT(fate_of_bad_job(daemon).reason, HasSubstr("took more than 64 MiB of memory"));
}

// Answers, and goes on with what follows.
constexpr const char* kAnswersAnd =
    "*/c666/*) echo \"${line%?},\\\"reason\\\":\\\"spent\\\"}\" | sed 's/\"tune\"/\"failed\"/'; ";

// The worker that has answered must end, and another one take the next job.
void expect_idle_worker_is_replaced(const RunningDaemon& daemon) {
  PlainClient client(daemon);
  client.send(cpu_request(kBadCols));
  EXPECT_EQ(client.expect<Failed>().reason, "spent");
  ASSERT_TRUE(becomes_true([&] { return client.status()["workers"].empty(); }));
  client.send(cpu_request(96));
  EXPECT_EQ(client.expect<Tuned>().problem, cpu_request(96).problem);
}

TEST(DaemonFaultsProcess, IdleWorkerThatHangsIsReplaced) {
  auto rules = ScriptedDaemon::quick_rules();
  rules.idle_time = std::chrono::milliseconds(50);
  rules.end_time = std::chrono::milliseconds(500);
  const ScriptedDaemon daemon(std::string(kAnswersAnd) + "exec sleep 1000 ;;", rules);
  expect_idle_worker_is_replaced(daemon);
  EXPECT_THAT(daemon.log(), HasSubstr("an idle worker did not end within 500 ms"));
}

TEST(DaemonFaultsProcess, IdleWorkerThatIsHungryIsReplaced) {
  auto rules = ScriptedDaemon::quick_rules();
  rules.max_bytes = std::int64_t{64} << 20;
  const ScriptedDaemon daemon(std::string(kAnswersAnd) +
                                  "x=0123456789abcdef; while :; do "
                                  "[ ${#x} -gt 100000000 ] && sleep 0.1 || x=$x$x; done ;;",
                              rules);
  expect_idle_worker_is_replaced(daemon);
  EXPECT_THAT(daemon.log(), HasSubstr("an idle worker took more than 64 MiB of memory"));
}

TEST(DaemonFaultsProcess, InterruptOfTheTerminalLetsTheJobFinish) {
  ScriptedDaemon daemon("*/c666/*) sleep 1 ;;");
  ASSERT_EQ(::setpgid(daemon.pid(), daemon.pid()), 0);
  PlainClient client(daemon);
  client.send(cpu_request(kBadCols));
  ASSERT_TRUE(becomes_true([&] { return client.status()["jobs_running"] == 1; }));
  ::kill(-daemon.pid(), SIGINT);  // to all of a process group, as a terminal sends it
  client.expect<Tuned>();
  EXPECT_EQ(daemon.wait(), 0);
}

TEST(DaemonFaultsProcess, InvalidWorkerOutputIsIgnored) {
  const ScriptedDaemon daemon("*/c666/*) echo nonsense; head -c 10000 /dev/zero ;;");
  EXPECT_THAT(fate_of_bad_job(daemon).reason, HasSubstr("wrote an invalid answer"));
}

TEST(DaemonFaultsProcess, StoppedDaemonDoesNotTimeOutItsWorkers) {
  auto rules = ScriptedDaemon::quick_rules();
  rules.time_limit = std::chrono::milliseconds(2000);
  const ScriptedDaemon daemon("*/c666/*) sleep 0.5 ;;", rules);
  PlainClient client(daemon);
  client.send(cpu_request(kBadCols));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  daemon.signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  daemon.signal(SIGCONT);
  client.expect<Tuned>();
  EXPECT_EQ(client.status()["workers_lost"], 0);
}

TEST(DaemonFaultsProcess, ASecondSignalDoesNotWaitForTheWorker) {
  ScriptedDaemon daemon("*/c666/*) exec sleep 1000 ;;");
  PlainClient client(daemon);
  client.send(cpu_request(kBadCols));
  const int worker = client.status()["workers"][0]["pid"];
  // At once one after the other, as `dorajit daemon stop --now` sends them.
  daemon.signal(SIGTERM);
  daemon.signal(SIGINT);
  EXPECT_EQ(daemon.wait(), 0);
  ::kill(worker, SIGKILL);
}

TEST(DaemonFaultsProcess, InvalidRequestEndsItsConnectionOnly) {
  const ScriptedDaemon daemon;
  PlainClient good(daemon);
  for (const std::string& bytes :
       {std::string("\0\xff\n", 3), std::string("hello\n"), std::string(100'000, 'x'),
        std::string(4000, '[') + "\n", std::string("{\"type\":\"tune\"}\n")}) {
    PlainClient bad(daemon.socket_folder());
    bad.send(bytes);
    EXPECT_FALSE(bad.expect<Refused>().reason.empty());
    EXPECT_FALSE(bad.receive());
  }
  good.send(cpu_request(96));
  good.expect<Tuned>();
}

TEST(DaemonFaultsProcess, ClientOfAnotherReleaseOrWithoutHelloIsRefused) {
  const ScriptedDaemon daemon;
  PlainClient other(daemon.socket_folder());
  other.send(Hello{.release = "0.0.0", .tuning_dir = daemon.cache_dir()});
  EXPECT_THAT(other.expect<Refused>().reason, HasSubstr("the daemon has dorajit"));
  EXPECT_FALSE(other.receive());
  PlainClient rude(daemon.socket_folder());
  rude.send(cpu_request(96));
  EXPECT_THAT(rude.expect<Refused>().reason, HasSubstr("hello"));
  EXPECT_FALSE(rude.receive());
}

TEST(DaemonFaultsProcess, SlowClientIsRefused) {
  const ScriptedDaemon daemon;
  PlainClient silent(daemon.socket_folder());
  PlainClient halting(daemon.socket_folder());
  halting.send(std::string("{\"type\":"));
  PlainClient half(daemon);
  half.send(std::string("{\"type\":\"tune\""));
  PlainClient idle(daemon);
  EXPECT_THAT(silent.expect<Refused>().reason, HasSubstr("no hello arrived in time"));
  EXPECT_THAT(halting.expect<Refused>().reason, HasSubstr("no hello arrived in time"));
  EXPECT_THAT(half.expect<Refused>().reason, HasSubstr("a line was not complete in time"));
  EXPECT_FALSE(half.receive());
  EXPECT_EQ(idle.status()["clients"], 1);
}

TEST(DaemonFaultsProcess, ClientThatSendsLinesSteadilyIsKept) {
  const ScriptedDaemon daemon;
  PlainClient client(daemon);
  const std::string line = to_line(Request(StatusRequest{}));
  const std::string part = line.substr(5) + line.substr(0, 5);
  // Each read ends inside a line, for longer than the 5 s that one line may take.
  ASSERT_TRUE(client.send(line.substr(0, 5)));
  for (int i = 0; i < 14; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ASSERT_TRUE(client.send(part)) << i;
    client.expect<Text>();
  }
}

TEST(DaemonFaultsProcess, DeletedSocketIsMadeAgain) {
  const ScriptedDaemon daemon;
  PlainClient before(daemon);
  const std::string socket = socket_path(daemon.socket_folder());
  ASSERT_TRUE(std::filesystem::remove(socket));
  EXPECT_EQ(PlainClient(daemon).status()["clients"], 2);
  EXPECT_GE(before.status()["clients"], 1) << "earlier clients stay";
}

TEST(DaemonFaultsProcess, DaemonEndsWhenItsFolderWasReplaced) {
  ScriptedDaemon daemon;
  {
    PlainClient client(daemon);
  }
  std::filesystem::rename(daemon.socket_folder(), daemon.folder() + "/moved");
  EXPECT_EQ(daemon.wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(socket_path(daemon.folder() + "/moved")));
}

TEST(DaemonFaultsProcess, ClientThatDoesNotReadIsDisconnected) {
  const ScriptedDaemon daemon;
  PlainClient deaf(daemon);
  while (deaf.send(StatusRequest{})) {
  }
  PlainClient other(daemon);
  EXPECT_EQ(other.status()["clients"], 1);
}

TEST(DaemonFaultsProcess, AnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const ScriptedDaemon daemon;
  const PlainClient own(daemon);
  const std::string path = socket_path(daemon.socket_folder());
  const auto connect_as_nobody = [&] {
    return cache::run_in_child([&] {
      CHILD_CHECK(cache::drop_root());
      if (::access(path.c_str(), W_OK) != 0) return 1;
      PlainClient stranger(daemon.socket_folder());
      const auto answer = stranger.receive();
      CHILD_CHECK(answer && std::holds_alternative<Refused>(*answer));
      return std::get<Refused>(*answer).reason == "the daemon belongs to another user" ? 2 : 3;
    });
  };
  EXPECT_EQ(connect_as_nobody(), 1) << "the socket is open to others";
  ::chmod(daemon.folder().c_str(), 0755);
  ::chmod(daemon.socket_folder().c_str(), 0755);
  ::chmod(path.c_str(), 0666);
  EXPECT_EQ(connect_as_nobody(), 2) << "the daemon does not ask who it is";
}

TEST(DaemonFaultsProcess, ThousandClientsAreServed) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const ScriptedDaemon daemon("*) sleep 1 ;;");
  std::vector<std::unique_ptr<PlainClient>> clients;
  for (int i = 0; i < 1000; ++i) clients.push_back(std::make_unique<PlainClient>(daemon));
  for (const auto& client : clients) client->send(cpu_request(96));
  for (const auto& client : clients) client->expect<Tuned>();
  EXPECT_EQ(clients[0]->status()["tuned"], 1);
  // The 1025th is one too many.
  for (int i = 0; i < 24; ++i) clients.push_back(std::make_unique<PlainClient>(daemon));
  PlainClient last(daemon.socket_folder());
  EXPECT_THAT(last.expect<Refused>().reason, HasSubstr("too many clients"));
  clients.resize(1);
  EXPECT_TRUE(becomes_true([&] { return clients[0]->status()["clients"] == 1; }));
  PlainClient next(daemon);
  EXPECT_EQ(next.status()["clients"], 2);
}

TEST(DaemonFaultsProcess, TenThousandRequestsWaitAndTheNextIsRefused) {
  const ScriptedDaemon daemon("*) exec sleep 30 ;;");
  PlainClient client(daemon);
  const std::int64_t before = autotune::resident_bytes(daemon.pid());
  for (int i = 1; i <= 10'000; ++i) client.send(cpu_request(i));
  client.send(cpu_request(10'001));
  EXPECT_EQ(client.expect<Failed>().reason, "the queue is full");
  EXPECT_EQ(client.status()["jobs_waiting"], 9'999);
  EXPECT_LT(autotune::resident_bytes(daemon.pid()) - before, 256 << 20);
  // What is large goes first, whenever it came.
  client.send(
      TuneRequest{.problem = cpu_request(2).problem, .device = cpu_fingerprint(), .calls = 1e9});
  EXPECT_EQ(client.status()["queue"][1]["problem"], cpu_request(2).problem);
}

}  // namespace
}  // namespace dorajit::tests
