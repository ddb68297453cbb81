// The commands of the daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "apps/cli/views/descriptions.h"
#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

using CliDaemon = CliTest;

TEST_F(CliDaemon, StatusWithoutADaemonSaysHowToStartOne) {
  const CliResult result = sandbox_.run("daemon status");
  EXPECT_THAT(result, fails(1, "start one with `dorajit daemon start`"));
  EXPECT_EQ(result.out, "");
}

TEST_F(CliDaemon, StatusIsWatchedUntilTheDaemonEnds) {
  ASSERT_EQ(sandbox_.start_daemon().exit_code, 0);
  const CliResult status = sandbox_.succeed("daemon status");
  EXPECT_THAT(status.out, HasSubstr("1 client connected, 0 problems waiting, 0 running"));
  EXPECT_EQ(sandbox_.json("daemon status")["clients"], 1);
  const pid_t watching = sandbox_.start("daemon status --watch");
  sandbox_.succeed("daemon stop");
  EXPECT_EQ(wait_for(watching), 1) << "it watches a daemon that is gone";
  EXPECT_FALSE(std::filesystem::exists(sandbox_.file("dorajitd.sock")));
}

TEST_F(CliDaemon, StartsInTheBackgroundOnce) {
  const auto first = sandbox_.json("daemon start --idle-exit 600");
  EXPECT_EQ(first["started"], true);
  const auto status = sandbox_.json("daemon status");
  EXPECT_THAT(first,
              has({{"/pid", status["pid"]}, {"/log", sandbox_.cache_dir() + "/dorajitd.log"}}));
  const auto second = sandbox_.json("daemon start");
  EXPECT_THAT(second, has({{"/started", false}, {"/pid", status["pid"]}}));
  sandbox_.succeed("daemon stop");
}

TEST_F(CliDaemon, StopReturnsWhenItHasEnded) {
  for (const char* stop : {"daemon stop", "daemon stop --now"}) {
    // The next one can start at once, as nothing of the earlier one is left.
    const auto started = sandbox_.json("daemon start");
    EXPECT_EQ(started["started"], true);
    EXPECT_EQ(sandbox_.json(stop)["pid"], started["pid"]);
    EXPECT_FALSE(std::filesystem::exists(sandbox_.file("dorajitd.sock")));
    EXPECT_THAT(sandbox_.run(stop), fails(1, "no daemon listens"));
  }
}

TEST_F(CliDaemon, LogHasLinesWithTheirTimes) {
  sandbox_.set("DORAJIT_LOG", "info");
  sandbox_.succeed("daemon start");
  sandbox_.succeed("daemon stop");
  std::ifstream log(sandbox_.cache_dir() + "/dorajitd.log");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(log), {}),
              testing::ContainsRegex("^[-0-9]+T[:0-9]+Z dorajitd: info: "));
}

TEST_F(CliDaemon, StartFindsADaemonWhoseSocketWasDeleted) {
  const auto first = sandbox_.json("daemon start");
  ASSERT_TRUE(std::filesystem::remove(sandbox_.file("dorajitd.sock")));
  const auto again = sandbox_.json("daemon start");
  EXPECT_THAT(again, has({{"/started", false}, {"/pid", first["pid"]}}));
  sandbox_.succeed("daemon stop");
}

TEST_F(CliDaemon, LogThatIsNoRegularFileIsNotWritten) {
  const std::string log = sandbox_.cache_dir() + "/dorajitd.log";
  std::filesystem::create_directories(sandbox_.cache_dir());
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  const CliResult started = sandbox_.succeed("daemon start");
  EXPECT_THAT(started.err, HasSubstr("messages are dropped"));
  sandbox_.succeed("daemon stop");

  const std::string other = sandbox_.write("other", "of another");
  std::filesystem::remove(log);
  std::filesystem::create_symlink(other, log);
  EXPECT_THAT(sandbox_.run("daemon start").err, HasSubstr("messages are dropped"));
  sandbox_.succeed("daemon stop");
  EXPECT_EQ(std::filesystem::file_size(other), 10U);
}

TEST_F(CliDaemon, LargeLogIsRotated) {
  const std::string path = sandbox_.cache_dir() + "/dorajitd.log";
  sandbox_.succeed("daemon start");
  const std::string much(1 << 20, 'x');
  std::ofstream(path, std::ios::app) << much;
  for (int i = 0; i < 100 && !std::filesystem::exists(path + ".1"); ++i) ::usleep(100'000);
  EXPECT_GE(std::filesystem::file_size(path + ".1"), much.size());
  // The daemon creates the new file with the next message.
  std::error_code missing;
  const std::uintmax_t size = std::filesystem::file_size(path, missing);
  EXPECT_TRUE(missing || size < much.size());
  sandbox_.succeed("daemon stop");
}

TEST_F(CliDaemon, InheritedDescriptorsAreClosed) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(sandbox_.start_daemon().exit_code, 0);
  ::close(ends[1]);
  pollfd end{.fd = ends[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&end, 1, 10'000), 1) << "a reader waits for the daemon's end";
  ::close(ends[0]);
  sandbox_.succeed("daemon stop");
}

TEST_F(CliDaemon, DaemonOfAnotherFolderIsRefused) {
  ASSERT_EQ(sandbox_.start_daemon().exit_code, 0);
  EXPECT_THAT(sandbox_.run({"--cache-dir", sandbox_.file("other"), "daemon", "status"}),
              fails(1, "stores its winners in " + sandbox_.cache_dir()));
  sandbox_.succeed("daemon stop");
}

}  // namespace
}  // namespace dorajit::test

namespace dorajit::cli {
namespace {

using testing::HasSubstr;

TEST(DaemonReport, ShowsQueueWorkersAndWinners) {
  const std::string text = daemon_text(Json::parse(R"({
    "pid": 7, "draining": true, "clients": 2, "jobs_waiting": 1, "jobs_running": 1, "tuned": 1,
    "failed": 1, "workers_lost": 3,
    "devices": [{"device": "gpu", "tuning_seconds": 1.5}],
    "workers": [{"pid": 8, "device": "gpu", "problem": "p1"}, {"pid": 9, "device": "cpu",
                 "problem": null}],
    "queue": [{"problem": "p1", "device": "gpu", "waiters": 2, "running": true},
              {"problem": "p2", "device": "gpu", "waiters": 3, "running": false}],
    "recent": [{"problem": "p3", "device": "gpu", "seconds": 0.5, "age_seconds": 60, "config": "b64",
                "median_ns": 1000, "default_median_ns": 1500},
               {"problem": "p4", "device": "gpu", "seconds": 1, "age_seconds": 61,
                "failure": "it crashed"}]})"));
  for (const char* part :
       {"process 7 and is ending", "2 clients connected, 1 problem waiting, 1 running",
        "3 workers lost", "1.50 s of tuning on gpu", "p1", "p2", "1.50x", "it crashed"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const std::string nothing = daemon_text(Json::parse(R"({"workers": 7, "pid": "x"})"));
  EXPECT_THAT(nothing, HasSubstr("0 clients"));
}

}  // namespace
}  // namespace dorajit::cli
