#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "runtime/base/files.h"
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

}  // namespace
}  // namespace dorajit
