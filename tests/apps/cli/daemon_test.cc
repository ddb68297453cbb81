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
  const CliResult result = sandbox.run({"daemon", "status"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("start one with `dorajit daemon start`"));
  EXPECT_EQ(result.out, "");
}

TEST(CliDaemon, StatusMetricsAndDrain) {
  const CliSandbox sandbox;
  ASSERT_EQ(sandbox.start_daemon().exit_code, 0);
  const CliResult status = sandbox.run({"daemon", "status"});
  EXPECT_EQ(status.exit_code, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("1 client connected, 0 problems waiting, 0 running"));
  EXPECT_EQ(sandbox.run({"daemon", "status", "--json"}).document()["clients"], 1);
  const std::string metrics = sandbox.run({"daemon", "metrics"}).out;
  EXPECT_THAT(metrics,
              HasSubstr("# TYPE dorajit_daemon_clients gauge\ndorajit_daemon_clients 1\n"));
  EXPECT_THAT(metrics, HasSubstr("dorajit_daemon_tuned_total 0\n"));

  const pid_t watching = sandbox.start({"daemon", "status", "--watch"});
  EXPECT_EQ(sandbox.run({"daemon", "drain"}).exit_code, 0);
  EXPECT_EQ(wait_for(watching), 1) << "it watches a daemon that is gone";
  EXPECT_FALSE(std::filesystem::exists(sandbox.folder() + "/dorajitd.sock"));
}

TEST(CliDaemon, StartsInTheBackgroundOnce) {
  const CliSandbox sandbox;
  const CliResult first = sandbox.run({"daemon", "start", "--idle-exit", "600", "--json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.document()["started"], true);
  const auto status = sandbox.run({"daemon", "status", "--json"}).document();
  EXPECT_EQ(first.document()["pid"], status["pid"]);
  EXPECT_EQ(first.document()["log"], sandbox.cache_dir() + "/dorajitd.log");
  const CliResult second = sandbox.run({"daemon", "start", "--json"});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(second.document()["started"], false);
  EXPECT_EQ(second.document()["pid"], status["pid"]);
  EXPECT_EQ(sandbox.run({"daemon", "stop"}).exit_code, 0);
}

TEST(CliDaemon, StartHandsOnOptions) {
  const CliSandbox sandbox;
  const CliResult refused = sandbox.run({"daemon", "start", "--duty", "200"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--duty"));
  EXPECT_EQ(sandbox.run({"daemon", "status"}).exit_code, 1);
}

TEST(CliDaemon, StopReturnsWhenItHasEnded) {
  const CliSandbox sandbox;
  ASSERT_EQ(sandbox.run({"daemon", "start"}).exit_code, 0);
  const CliResult stopped = sandbox.run({"daemon", "stop", "--json"});
  ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(stopped.document()["ended"], true);
  EXPECT_FALSE(std::filesystem::exists(sandbox.folder() + "/dorajitd.sock"));
  const CliResult again = sandbox.run({"daemon", "stop"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("no daemon listens"));
}

TEST(CliDaemon, DrainWaitsForTheEnd) {
  const CliSandbox sandbox;
  ASSERT_EQ(sandbox.run({"daemon", "start"}).exit_code, 0);
  const auto drained = sandbox.run({"daemon", "drain", "--wait", "--json"}).document();
  EXPECT_EQ(drained["ended"], true);
  // A new one can start at once, as nothing of the old one is left.
  EXPECT_EQ(sandbox.run({"daemon", "start", "--json"}).document()["started"], true);
  EXPECT_EQ(sandbox.run({"daemon", "drain", "--json"}).document()["ended"], false);
}

TEST(CliDaemon, LogHasLinesWithTheirTimes) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_LOG", "info");
  ASSERT_EQ(sandbox.run({"daemon", "start"}).exit_code, 0);
  ASSERT_EQ(sandbox.run({"daemon", "drain", "--wait"}).exit_code, 0);
  std::ifstream log(sandbox.cache_dir() + "/dorajitd.log");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(log), {}),
              testing::ContainsRegex("^[-0-9]+T[:0-9]+Z dorajitd: info: "));
}

TEST(CliDaemon, StartFindsADaemonWhoseSocketWasDeleted) {
  const CliSandbox sandbox;
  const auto first = sandbox.run({"daemon", "start", "--json"}).document();
  ASSERT_TRUE(std::filesystem::remove(sandbox.folder() + "/dorajitd.sock"));
  const CliResult again = sandbox.run({"daemon", "start", "--json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.document()["started"], false);
  EXPECT_EQ(again.document()["pid"], first["pid"]);
  EXPECT_EQ(sandbox.run({"daemon", "stop"}).exit_code, 0);
}

TEST(CliDaemon, LogThatIsNoRegularFileIsNotWritten) {
  const CliSandbox sandbox;
  const std::string log = sandbox.cache_dir() + "/dorajitd.log";
  std::filesystem::create_directories(sandbox.cache_dir());
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  const CliResult started = sandbox.run({"daemon", "start"});
  EXPECT_EQ(started.exit_code, 0) << started.err;
  EXPECT_THAT(started.err, HasSubstr("messages are dropped"));
  EXPECT_EQ(sandbox.run({"daemon", "stop"}).exit_code, 0);

  const std::string other = sandbox.folder() + "/other";
  std::ofstream(other) << "of another";
  std::filesystem::remove(log);
  std::filesystem::create_symlink(other, log);
  EXPECT_THAT(sandbox.run({"daemon", "start"}).err, HasSubstr("messages are dropped"));
  EXPECT_EQ(sandbox.run({"daemon", "stop"}).exit_code, 0);
  EXPECT_EQ(std::filesystem::file_size(other), 10U);
}

TEST(CliDaemon, LargeLogIsRotated) {
  const CliSandbox sandbox;
  const std::string path = sandbox.cache_dir() + "/dorajitd.log";
  ASSERT_EQ(sandbox.run({"daemon", "start"}).exit_code, 0);
  const std::string much(1 << 20, 'x');
  std::ofstream(path, std::ios::app) << much;
  for (int i = 0; i < 100 && !std::filesystem::exists(path + ".1"); ++i) ::usleep(100'000);
  EXPECT_GE(std::filesystem::file_size(path + ".1"), much.size());
  // The daemon creates the new file with the next message.
  std::error_code missing;
  const std::uintmax_t size = std::filesystem::file_size(path, missing);
  EXPECT_TRUE(missing || size < much.size());
  EXPECT_EQ(sandbox.run({"daemon", "stop"}).exit_code, 0);
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
  EXPECT_EQ(sandbox.run({"daemon", "drain"}).exit_code, 0);
}

TEST(CliDaemon, DaemonOfAnotherFolderIsRefused) {
  CliSandbox sandbox;
  ASSERT_EQ(sandbox.start_daemon().exit_code, 0);
  const CliResult result =
      sandbox.run({"--cache-dir", sandbox.folder() + "/other", "daemon", "status"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("stores its winners in " + sandbox.cache_dir()));
  EXPECT_EQ(sandbox.run({"daemon", "drain"}).exit_code, 0);
}

}  // namespace
}  // namespace dorajit::test
