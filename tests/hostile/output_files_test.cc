// Files that a user asks for by name, in folders that another user can write (docs/security.md).
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "cache/database/trial_files.h"
#include "cache/files/shared_file.h"
#include "runtime/base/file_descriptor.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/hostile/hostile_users.h"

namespace dorajit::hostile {
namespace {

using cache::read_file;
using cache::write_output_file;

mode_t mode_of(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

// This user's 0600 file, which no output may change, and a folder of the attacker's.
class HostileOutputProcess : public testing::Test {
 protected:
  HostileOutputProcess() {
    cache::write_file(precious(), "own");
    ::chmod(precious().c_str(), 0600);
    ::chmod(directory_.path().c_str(), 0755);
    ::mkdir(folder().c_str(), 0755);
  }

  void SetUp() override {
    if (!is_root()) GTEST_SKIP() << "only root can write in the folder of another user";
    ASSERT_EQ(::chown(folder().c_str(), kAttacker, kAttacker), 0);
  }

  [[nodiscard]] std::string precious() const { return directory_.file("precious"); }
  [[nodiscard]] std::string folder() const { return directory_.file("theirs"); }
  [[nodiscard]] std::string out() const { return folder() + "/out"; }

  void plant(const std::string& target, const std::string& link) const {
    ASSERT_EQ(run_as(kAttacker, [&] { return ::symlink(target.c_str(), link.c_str()); }), 0);
  }

  void expect_precious_is_unchanged() const {
    EXPECT_EQ(read_file(precious()), "own");
    EXPECT_EQ(mode_of(precious()), 0600U);
  }

  // The attacker replaces temporary files by links to the precious file while `write` runs.
  void swap_temporary_files_during(const std::function<void()>& write) const {
    const std::string target = precious();
    const cache::Pipe started;
    const pid_t attacker = cache::start_child([&] {
      if (!become(kAttacker) || ::chdir(folder().c_str()) != 0) return 1;
      started.send('s');
      for (;;) {
        DIR* const entries = ::opendir(".");
        while (const dirent* entry = ::readdir(entries)) {
          const std::string_view name = entry->d_name;
          if (entry->d_type != DT_REG || !name.contains(".tmp.")) continue;
          ::unlink(entry->d_name);
          (void)!::symlink(target.c_str(), entry->d_name);
        }
        ::closedir(entries);
      }
    });
    char byte = 0;
    EXPECT_TRUE(started.receive(byte));
    write();
    ::kill(attacker, SIGKILL);
    cache::wait_for_child(attacker);
  }

  cache::TemporaryDirectory directory_;
};

TEST_F(HostileOutputProcess, SwappedTemporaryFileIsNotFollowed) {
  const std::string bytes(std::size_t{4} << 20, 'x');
  swap_temporary_files_during([&] {
    for (int i = 0; i < 200; ++i) {
      (void)write_output_file(out(), bytes);
      ASSERT_EQ(mode_of(precious()), 0600U) << i;
    }
  });
  expect_precious_is_unchanged();
}

TEST_F(HostileOutputProcess, SwappedTemporaryDatabaseIsNotFollowed) {
  cache::write_file(precious(), "");  // SQLite takes an empty file for an empty database
  const auto trials = cache::sample_trials(1, 20);
  swap_temporary_files_during([&] {
    for (int i = 0; i < 20; ++i) {
      (void)cache::write_shipped_database(out(), trials);
      ASSERT_EQ(mode_of(precious()), 0600U) << i;
      ASSERT_EQ(read_file(precious()), "") << i;
    }
  });
}

TEST_F(HostileOutputProcess, LinkOfAnotherUserIsRefused) {
  ASSERT_EQ(::chmod(folder().c_str(), 01777), 0);
  ASSERT_EQ(::chown(folder().c_str(), 0, 0), 0);
  plant(precious(), out());
  const auto refused = write_output_file(out(), "new");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(out() + " is a symbolic link of user 54321"),
            std::string::npos)
      << refused.error().message;
  expect_precious_is_unchanged();
}

TEST_F(HostileOutputProcess, FolderBehindALinkOfAnotherUserIsRefused) {
  plant(directory_.path(), folder() + "/sub");
  EXPECT_FALSE(write_output_file(folder() + "/sub/precious", "new"));
  expect_precious_is_unchanged();
  std::filesystem::create_symlink(folder() + "/sub", directory_.file("own link"));
  EXPECT_FALSE(write_output_file(directory_.file("own link/precious"), "new"));
  expect_precious_is_unchanged();
}

TEST_F(HostileOutputProcess, LinkOfAnotherUserToADeviceOrPipeIsRefused) {
  plant("/dev/null", out());
  EXPECT_FALSE(write_output_file(out(), "new"));
  const std::string pipe = folder() + "/pipe";
  ASSERT_EQ(run_as(kAttacker, [&] { return ::mkfifo(pipe.c_str(), 0666); }), 0);
  const FileDescriptor reader(::open(pipe.c_str(), O_RDWR | O_CLOEXEC));  // or opening it waits
  EXPECT_FALSE(write_output_file(pipe, "new"));
}

TEST_F(HostileOutputProcess, ReplacedFileOfAnotherUserWidensNoAccess) {
  cache::write_file(out(), "theirs");
  ASSERT_EQ(::chown(out().c_str(), kAttacker, kAttacker), 0);
  for (const auto& [before, after] : {std::pair{0666, 0600U}, {0400, 0400U}}) {
    ASSERT_EQ(::chmod(out().c_str(), static_cast<mode_t>(before)), 0);
    const mode_t mask = ::umask(077);
    const auto written = write_output_file(out(), "new");
    ::umask(mask);
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_EQ(read_file(out()), "new");
    EXPECT_EQ(mode_of(out()), after);
    ASSERT_EQ(::chown(out().c_str(), kAttacker, kAttacker), 0);
  }
}

}  // namespace
}  // namespace dorajit::hostile
