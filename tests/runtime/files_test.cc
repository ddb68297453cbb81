// Folders of one process, and files that a user names: devices, FIFOs and files without end are
// refused at once.
#include "runtime/base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>

#include "runtime/base/file_descriptor.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/scoped_environment.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit {
namespace {

namespace fs = std::filesystem;
using cache::run_in_child;
using cache::TemporaryDirectory;

class PrivateFolderProcess : public testing::Test {
 protected:
  PrivateFolderProcess() { setenv("TMPDIR", directory_.path().c_str(), 1); }

  void age(const std::string& path) const {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
  }
  // Creates the folder of a killed process.
  std::string abandon() {
    EXPECT_EQ(run_in_child([] {
                const auto folder = PrivateFolder::make();
                CHILD_CHECK(folder && folder->write("math/a.h", "text"));
                ::_exit(0);
                return 0;
              }),
              0);
    for (const auto& entry : fs::directory_iterator(directory_.path())) {
      if (fs::exists(entry.path() / "math/a.h")) return entry.path();
    }
    ADD_FAILURE() << "nothing was left";
    return {};
  }

  TemporaryDirectory directory_;
  tests::ScopedEnvironment environment_{"TMPDIR"};
};

TEST_F(PrivateFolderProcess, IsRemovedWithItsContents) {
  std::string path;
  {
    const auto folder = PrivateFolder::make();
    ASSERT_TRUE(folder) << folder.error().message;
    ASSERT_TRUE(folder->write("math/a.h", "text"));
    EXPECT_EQ(folder->read("math/a.h"), "text");
    EXPECT_FALSE(folder->write("math/a.h", "again"));
    path = folder->path();
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(PrivateFolderProcess, OldFolderOfAKilledProcessIsRemoved) {
  const std::string left = abandon();
  PrivateFolder::remove_abandoned();
  EXPECT_TRUE(fs::exists(left));
  age(left);
  PrivateFolder::remove_abandoned();
  EXPECT_FALSE(fs::exists(left));
}

// Only the first make() of a process removes such folders, so this needs a new process: a death
// test of this style.
TEST_F(PrivateFolderProcess, FirstNewFolderRemovesThoseOfKilledProcesses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const std::string left = abandon();
        age(left);
        const bool was_made = PrivateFolder::make().has_value();
        const bool is_gone = !fs::exists(left);
        fs::remove_all(directory_.path());
        ::_exit(was_made && is_gone ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(PrivateFolderProcess, FoldersInUseAndOtherFilesAreKept) {
  const auto used = PrivateFolder::make();
  ASSERT_TRUE(used);
  age(used->path());
  const std::string other = directory_.file("dorajit-compile-bundle");
  fs::create_directory(other);  // accessible to others, unlike a folder of this library
  age(other);
  fs::create_directory(directory_.file("target"));
  const std::string link = directory_.file("dorajit-compile-linked");
  fs::create_symlink(directory_.file("target"), link);
  PrivateFolder::remove_abandoned();
  for (const std::string& path : {used->path(), other, link}) EXPECT_TRUE(fs::exists(path)) << path;
}

TEST_F(PrivateFolderProcess, FoldersOfAnotherUserAreKept) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  const std::string left = abandon();
  ASSERT_EQ(::chown(left.c_str(), 65534, 65534), 0);
  age(left);
  PrivateFolder::remove_abandoned();
  EXPECT_TRUE(fs::exists(left));
}

using testing::HasSubstr;

constexpr std::size_t kMaxBytes = 100'000;

std::string refusal_of(const std::string& path) {
  const auto bytes = read_regular_file(path, kMaxBytes);
  EXPECT_FALSE(bytes) << path;
  return bytes ? std::string() : bytes.error();
}

TEST(RegularFileTest, BytesAreReadThroughALink) {
  const cache::TemporaryDirectory directory;
  const std::string bytes = std::string(kMaxBytes - 1, 'x') + '\0';
  cache::write_file(directory.file("data"), bytes);
  std::filesystem::create_symlink("data", directory.file("link"));
  EXPECT_EQ(read_regular_file(directory.file("link"), kMaxBytes), bytes);
  EXPECT_EQ(read_file_start(directory.file("data"), 5), "xxxxx");
  cache::write_file(directory.file("none"), "");
  EXPECT_EQ(read_regular_file(directory.file("none"), kMaxBytes), "");
}

TEST(RegularFileTest, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
  const cache::TemporaryDirectory directory;
  const std::string pipe = directory.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string socket = directory.file("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
  const FileDescriptor bound(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(bound.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  for (const std::string& path :
       {pipe, socket, std::string("/dev/zero"), std::string("/dev/tty")}) {
    EXPECT_FALSE(read_regular_file(path, kMaxBytes)) << path;
  }
  EXPECT_EQ(refusal_of(pipe), "it is not a regular file");
  EXPECT_EQ(refusal_of(socket), "it is not a regular file");
  EXPECT_EQ(refusal_of("/dev/zero"), "it is not a regular file");
  EXPECT_EQ(refusal_of(directory.path()), "Is a directory");
  EXPECT_EQ(refusal_of(directory.file("missing")), "No such file or directory");
}

TEST(RegularFileTest, LargeFileIsRefused) {
  const cache::TemporaryDirectory directory;
  cache::write_file(directory.file("large"), std::string(kMaxBytes + 1, 'x'));
  EXPECT_EQ(refusal_of(directory.file("large")), "it is larger than 100000 bytes");
  std::filesystem::resize_file(directory.file("large"), std::uintmax_t{1} << 40);
  EXPECT_EQ(refusal_of(directory.file("large")), "it is larger than 100000 bytes");
}

TEST(RegularFileTest, FileOfUnknownSizeIsReadToItsEnd) {
  const auto status = read_regular_file("/proc/self/status", kMaxBytes);
  ASSERT_TRUE(status) << status.error();
  EXPECT_THAT(*status, HasSubstr("Threads:"));
}

}  // namespace
}  // namespace dorajit
