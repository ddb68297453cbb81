#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

TEST(CliDaemon, StatusWithoutADaemonSaysHowToStartOne) {
  const CliSandbox sandbox;
  const CliResult result = sandbox.run("daemon status");
  EXPECT_THAT(result, fails(1, "start one with `dorajit daemon start`"));
  EXPECT_EQ(result.out, "");
}

TEST(CliDaemon, StatusIsWatchedUntilTheDaemonEnds) {
  const CliSandbox sandbox;
  ASSERT_EQ(sandbox.start_daemon().exit_code, 0);
  const CliResult status = sandbox.succeed("daemon status");
  EXPECT_THAT(status.out, HasSubstr("1 client connected, 0 problems waiting, 0 running"));
  EXPECT_EQ(sandbox.json("daemon status")["clients"], 1);
  const pid_t watching = sandbox.start("daemon status --watch");
  sandbox.succeed("daemon stop");
  EXPECT_EQ(wait_for(watching), 1) << "it watches a daemon that is gone";
  EXPECT_FALSE(std::filesystem::exists(sandbox.file("dorajitd.sock")));
}

TEST(CliDaemon, StartsInTheBackgroundOnce) {
  const CliSandbox sandbox;
  const auto first = sandbox.json("daemon start --idle-exit 600");
  EXPECT_EQ(first["started"], true);
  const auto status = sandbox.json("daemon status");
  EXPECT_THAT(first,
              has({{"/pid", status["pid"]}, {"/log", sandbox.cache_dir() + "/dorajitd.log"}}));
  const auto second = sandbox.json("daemon start");
  EXPECT_THAT(second, has({{"/started", false}, {"/pid", status["pid"]}}));
  sandbox.succeed("daemon stop");
}

TEST(CliDaemon, StartHandsOnOptions) {
  const CliSandbox sandbox;
  EXPECT_THAT(sandbox.run("daemon start --duty 200"), fails(2, "--duty"));
  EXPECT_EQ(sandbox.run("daemon status").exit_code, 1);
}

TEST(CliDaemon, StopReturnsWhenItHasEnded) {
  const CliSandbox sandbox;
  for (const char* stop : {"daemon stop", "daemon stop --now"}) {
    // The next one can start at once, as nothing of the earlier one is left.
    const auto started = sandbox.json("daemon start");
    EXPECT_EQ(started["started"], true);
    EXPECT_EQ(sandbox.json(stop)["pid"], started["pid"]);
    EXPECT_FALSE(std::filesystem::exists(sandbox.file("dorajitd.sock")));
    EXPECT_THAT(sandbox.run(stop), fails(1, "no daemon listens"));
  }
}

TEST(CliDaemon, LogHasLinesWithTheirTimes) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_LOG", "info");
  sandbox.succeed("daemon start");
  sandbox.succeed("daemon stop");
  std::ifstream log(sandbox.cache_dir() + "/dorajitd.log");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(log), {}),
              testing::ContainsRegex("^[-0-9]+T[:0-9]+Z dorajitd: info: "));
}

TEST(CliDaemon, StartFindsADaemonWhoseSocketWasDeleted) {
  const CliSandbox sandbox;
  const auto first = sandbox.json("daemon start");
  ASSERT_TRUE(std::filesystem::remove(sandbox.file("dorajitd.sock")));
  const auto again = sandbox.json("daemon start");
  EXPECT_THAT(again, has({{"/started", false}, {"/pid", first["pid"]}}));
  sandbox.succeed("daemon stop");
}

TEST(CliDaemon, LogThatIsNoRegularFileIsNotWritten) {
  const CliSandbox sandbox;
  const std::string log = sandbox.cache_dir() + "/dorajitd.log";
  std::filesystem::create_directories(sandbox.cache_dir());
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  const CliResult started = sandbox.succeed("daemon start");
  EXPECT_THAT(started.err, HasSubstr("messages are dropped"));
  sandbox.succeed("daemon stop");

  const std::string other = sandbox.write("other", "of another");
  std::filesystem::remove(log);
  std::filesystem::create_symlink(other, log);
  EXPECT_THAT(sandbox.run("daemon start").err, HasSubstr("messages are dropped"));
  sandbox.succeed("daemon stop");
  EXPECT_EQ(std::filesystem::file_size(other), 10U);
}

TEST(CliDaemon, LargeLogIsRotated) {
  const CliSandbox sandbox;
  const std::string path = sandbox.cache_dir() + "/dorajitd.log";
  sandbox.succeed("daemon start");
  const std::string much(1 << 20, 'x');
  std::ofstream(path, std::ios::app) << much;
  for (int i = 0; i < 100 && !std::filesystem::exists(path + ".1"); ++i) ::usleep(100'000);
  EXPECT_GE(std::filesystem::file_size(path + ".1"), much.size());
  // The daemon creates the new file with the next message.
  std::error_code missing;
  const std::uintmax_t size = std::filesystem::file_size(path, missing);
  EXPECT_TRUE(missing || size < much.size());
  sandbox.succeed("daemon stop");
}

TEST(CliDaemon, InheritedDescriptorsAreClosed) {
  const CliSandbox sandbox;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(sandbox.start_daemon().exit_code, 0);
  ::close(ends[1]);
  pollfd end{.fd = ends[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&end, 1, 10'000), 1) << "a reader waits for the daemon's end";
  ::close(ends[0]);
  sandbox.succeed("daemon stop");
}

TEST(CliDaemon, DaemonOfAnotherFolderIsRefused) {
  CliSandbox sandbox;
  ASSERT_EQ(sandbox.start_daemon().exit_code, 0);
  EXPECT_THAT(sandbox.run({"--cache-dir", sandbox.file("other"), "daemon", "status"}),
              fails(1, "stores its winners in " + sandbox.cache_dir()));
  sandbox.succeed("daemon stop");
}

}  // namespace
}  // namespace dorajit::test
