// As a service of systemd: the units, and the socket that is handed over.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "autotune/service/protocol/socket_path.h"
#include "runtime/compile/subprocess.h"
#include "tests/apps/daemon/running_daemon.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::tests {
namespace {

using testing::HasSubstr;

// Writes a unit as an installation would have it.
void configure_unit(const std::string& name, const std::filesystem::path& folder) {
  std::ifstream in(std::string(DORAJIT_SOURCE_DIR) + "/apps/daemon/systemd/" + name + ".in");
  std::stringstream text;
  text << in.rdbuf();
  std::string unit = text.str();
  const std::string bindir = std::filesystem::path(DORAJITD).parent_path();
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"@bindir@", bindir},
        std::pair<std::string, std::string>{"@docdir@", "/usr/share/doc"}}) {
    if (const auto at = unit.find(from); at != std::string::npos) unit.replace(at, from.size(), to);
  }
  EXPECT_FALSE(std::regex_search(unit, std::regex("@[a-z]+@"))) << unit;
  std::ofstream(folder / name) << unit;
}

Result<compile::ProcessResult> verify(const std::filesystem::path& folder) {
  return compile::run_process(
      {"/usr/bin/env", "XDG_RUNTIME_DIR=" + folder.string(), "systemd-analyze", "--user", "verify",
       folder / "dorajitd.service", folder / "dorajitd.socket"},
      std::chrono::seconds(60));
}

TEST(SystemdUnits, PassSystemdAnalyzeVerify) {
  const auto there =
      compile::run_process({"systemd-analyze", "--version"}, std::chrono::seconds(60));
  if (!there || there->exit_code != 0) GTEST_SKIP() << "systemd-analyze is missing";
  const cache::TemporaryDirectory folder;
  configure_unit("dorajitd.service", folder.path());
  configure_unit("dorajitd.socket", folder.path());
  const auto good = verify(folder.path());
  ASSERT_TRUE(good);
  EXPECT_EQ(good->exit_code, 0);
  EXPECT_EQ(good->output, "");
  std::ofstream(std::filesystem::path(folder.path()) / "dorajitd.service", std::ios::app)
      << "\n[Service]\nNoSuchKey=1\n";
  const auto bad = verify(folder.path());
  ASSERT_TRUE(bad);
  EXPECT_THAT(bad->output, HasSubstr("NoSuchKey")) << "nothing is verified";
}

// What `systemd-analyze security` says, from 0 to 10; -1 if it says nothing.
double exposure_of(const std::string& unit) {
  const cache::TemporaryDirectory folder;
  configure_unit(unit, folder.path());
  const auto analysed = compile::run_process(
      {"/usr/bin/env", "XDG_RUNTIME_DIR=" + folder.path(), "systemd-analyze", "--user", "security",
       "--offline=true", "--no-pager", folder.file(unit)},
      std::chrono::seconds(60));
  constexpr std::string_view kBefore = "Overall exposure level for ";
  const auto at = analysed ? analysed->output.find(kBefore) : std::string::npos;
  if (at == std::string::npos) return -1;
  const std::string rest = analysed->output.substr(at + kBefore.size());
  return std::stod(rest.substr(rest.find(": ") + 2));
}

// Half of the exposure that is left to the service are capabilities, which a user's service does
// not have and its manager cannot take, and file system namespaces.
TEST(SystemdUnits, AreSandboxed) {
  const double service = exposure_of("dorajitd.service");
  const double socket = exposure_of("dorajitd.socket");
  if (service < 0 || socket < 0) GTEST_SKIP() << "systemd-analyze is missing or too old";
  EXPECT_LE(service, 6.5);
  EXPECT_LE(socket, 4);
}

// The program, given a socket as systemd gives it.
class ActivatedDaemon {
 public:
  ActivatedDaemon() : place_({}, false) {
    std::filesystem::create_directory(place_.socket_folder());
    std::filesystem::permissions(place_.socket_folder(), std::filesystem::perms::owner_all);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = autotune::protocol::socket_path(place_.socket_folder());
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    socket_ = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket_.get(), 8), 0);
  }

  pid_t start() {
    return cache::start_child([this] {
      ::dup2(socket_.get(), 3);  // clears close-on-exec
      ::fcntl(3, F_SETFD, 0);
      ::setenv("LISTEN_FDS", "1", 1);
      ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
      ::setenv("DORAJIT_DAEMON_DIR", place_.socket_folder().c_str(), 1);
      const std::vector<std::string> words = place_.command();
      std::vector<char*> pointers;
      for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
      pointers.push_back(nullptr);
      ::execv(DORAJITD, pointers.data());
      return 127;
    });
  }

  RealDaemon& place() { return place_; }

 private:
  RealDaemon place_;
  FileDescriptor socket_;
};

TEST(SystemdSocketProcess, ServesEarlierClientsAndKeepsTheSocket) {
  ActivatedDaemon activated;
  for (int i = 0; i < 2; ++i) {
    PlainClient early(activated.place().socket_folder());
    early.send(activated.place().hello());
    const pid_t daemon = activated.start();
    EXPECT_EQ(early.expect<autotune::protocol::Hello>(), activated.place().hello());
    ::kill(daemon, SIGTERM);
    EXPECT_EQ(cache::wait_for_child(daemon), 0);
    EXPECT_TRUE(std::filesystem::exists(
        autotune::protocol::socket_path(activated.place().socket_folder())));
  }
}

TEST(BackgroundProcess, ParentReturnsWhenClientsCanConnect) {
  RealDaemon place({}, false);
  std::vector<std::string> words = {"/usr/bin/env", "DORAJIT_DAEMON_DIR=" + place.socket_folder()};
  for (const std::string& word : place.command()) {
    if (word != "--foreground") words.push_back(word);
  }
  const auto started = compile::run_process(words, std::chrono::seconds(60));
  ASSERT_TRUE(started);
  EXPECT_EQ(started->exit_code, 0) << started->output;
  EXPECT_EQ(started->output, "");
  EXPECT_TRUE(std::filesystem::exists(autotune::protocol::socket_path(place.socket_folder())));
  PlainClient client(place);
  ::kill(client.status()["pid"], SIGTERM);
  EXPECT_TRUE(becomes_true([&] { return !client.receive(); }));
}

TEST(BackgroundProcess, ParentReportsWhyTheDaemonFailed) {
  RealDaemon place({}, false);
  const auto started = compile::run_process(
      {"/usr/bin/env", "DORAJIT_DAEMON_DIR=" + place.folder() + "/" + std::string(100, 'x'),
       DORAJITD, "--cache-dir", place.cache_dir()},
      std::chrono::seconds(60));
  ASSERT_TRUE(started);
  EXPECT_EQ(started->exit_code, 2);
  EXPECT_THAT(started->output, HasSubstr("shorter folder"));
}

}  // namespace
}  // namespace dorajit::tests
