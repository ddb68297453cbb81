#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

TEST(CliDaemon, WithoutOneSaysHowToStartIt) {
  const CliSandbox sandbox;
  const CliResult result = sandbox.run({"daemon", "status"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("start one with `dorajitd`"));
  EXPECT_EQ(result.out, "");
}

TEST(CliDaemon, IsShownAndEnded) {
  const CliSandbox sandbox;
  ASSERT_EQ(sandbox.start_daemon({"--metrics-file", sandbox.folder() + "/metrics.prom"}).exit_code,
            0);
  const CliResult status = sandbox.run({"daemon", "status"});
  EXPECT_EQ(status.exit_code, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("1 client connected, 0 problems waiting, 0 in hand"));
  EXPECT_EQ(sandbox.run({"daemon", "status", "--json"}).document()["clients"], 1);
  EXPECT_THAT(sandbox.run({"daemon", "metrics"}).out,
              HasSubstr("# TYPE dorajit_daemon_clients gauge\ndorajit_daemon_clients 1\n"));
  std::ifstream metrics(sandbox.folder() + "/metrics.prom");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(metrics), {}),
              HasSubstr("dorajit_daemon_tuned_total 0\n"));

  const pid_t watching = sandbox.start({"daemon", "status", "--watch"});
  EXPECT_EQ(sandbox.run({"daemon", "drain"}).exit_code, 0);
  EXPECT_EQ(wait_for(watching), 1) << "it watches a daemon that is gone";
  EXPECT_FALSE(std::filesystem::exists(sandbox.folder() + "/dorajitd.sock"));
}

TEST(CliDaemon, HoldsNothingOfWhoeverStartedIt) {
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

TEST(CliDaemon, OfAnotherFolderIsNotTakenForTheirs) {
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
