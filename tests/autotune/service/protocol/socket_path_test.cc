#include "autotune/service/protocol/socket_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/apps/daemon/running_daemon.h"
#include "tests/fakes/scoped_environment.h"

namespace dorajit::tests {
namespace {

using namespace autotune::protocol;  // NOLINT(google-build-using-namespace): what this is about
using testing::HasSubstr;

TEST(SocketPath, FolderIsTheFirstConfiguredOne) {
  const ScopedEnvironment environment{"XDG_RUNTIME_DIR"};
  EXPECT_THAT(
      socket_folder({}),
      testing::EndsWith(std::to_string(::geteuid()) +
                        (std::filesystem::is_directory("/run/user/" + std::to_string(::geteuid()))
                             ? "/dorajit"
                             : "")));
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(socket_folder({}), "/run/user/7/dorajit");
  EXPECT_EQ(socket_folder("/elsewhere"), "/elsewhere");
}

TEST(SocketPathProcess, OverlongPathIsRefusedWithARemedy) {
  RealDaemon daemon({}, false);
  const std::string folder = daemon.folder() + "/" + std::string(100, 'x');
  daemon.set("DORAJIT_DAEMON_DIR", folder);
  daemon.start();
  EXPECT_EQ(daemon.wait(), 2) << daemon.log();
  EXPECT_THAT(daemon.log(), HasSubstr("set DORAJIT_DAEMON_DIR to a shorter folder"));
}

TEST(SocketPathProcess, RelativeFolderIsRefused) {
  RealDaemon daemon({}, false);
  daemon.set("DORAJIT_DAEMON_DIR", "run");
  daemon.start();
  EXPECT_EQ(daemon.wait(), 2) << daemon.log();
  EXPECT_THAT(daemon.log(), HasSubstr("DORAJIT_DAEMON_DIR is \"run\""));
}

TEST(SocketPathProcess, FolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  RealDaemon daemon({}, false);
  std::filesystem::create_directory(daemon.socket_folder());
  ASSERT_EQ(::chown(daemon.socket_folder().c_str(), 65534, 65534), 0);
  daemon.start();
  EXPECT_EQ(daemon.wait(), 1) << daemon.log();
  EXPECT_THAT(daemon.log(), HasSubstr(daemon.socket_folder()));
}

TEST(SocketPathProcess, ObjectThatReplacedTheFolderIsNotUsed) {
  RealDaemon daemon;
  {
    const PlainClient client(daemon);
  }
  const std::string away = daemon.folder() + "/away";
  std::filesystem::rename(daemon.socket_folder(), away);
  std::filesystem::create_directory(daemon.socket_folder());
  const std::string other = socket_path(daemon.socket_folder());
  std::ofstream(other) << "another's";
  daemon.signal(SIGTERM);
  EXPECT_EQ(daemon.wait(), 0) << daemon.log();
  EXPECT_TRUE(std::filesystem::exists(other));
  EXPECT_FALSE(std::filesystem::exists(socket_path(away)));
}

TEST(SocketPathProcess, AccessOfOtherUsersToTheFolderIsRemoved) {
  RealDaemon daemon({}, false);
  std::filesystem::create_directory(daemon.socket_folder());
  ::chmod(daemon.socket_folder().c_str(), 0755);
  daemon.start();
  const PlainClient client(daemon);
  struct stat found{};
  ASSERT_EQ(::stat(daemon.socket_folder().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700U);
  ASSERT_EQ(::stat(socket_path(daemon.socket_folder()).c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600U);
}

TEST(SocketPathProcess, LeftoverAtTheSocketPathIsReplaced) {
  RealDaemon daemon({}, false);
  std::filesystem::create_directory(daemon.socket_folder());
  std::ofstream(socket_path(daemon.socket_folder())) << "not a socket";
  daemon.start();
  const PlainClient client(daemon);
}

}  // namespace
}  // namespace dorajit::tests
