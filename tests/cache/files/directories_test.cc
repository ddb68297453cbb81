#include "cache/files/directories.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

TEST(Directories, OwnDirectoryRefusesLinksAndFoldersWritableByOthers) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("own");
  EXPECT_TRUE(make_own_directory(path));
  EXPECT_TRUE(make_own_directory(path));
  for (const mode_t mode : {0770, 0707}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    const auto refused = make_own_directory(path);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find(path), std::string::npos);
  }
  ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  std::filesystem::create_symlink(path, directory.file("link"));
  EXPECT_FALSE(make_own_directory(directory.file("link")));
  write_file(directory.file("file"), "");
  EXPECT_FALSE(make_own_directory(directory.file("file")));
}

TEST(Directories, OwnDirectoryStaysOpenIfItsNameIsReplaced) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("own");
  const auto missing = open_own_directory(path);
  ASSERT_TRUE(missing);
  EXPECT_FALSE(*missing);
  const auto held = make_own_directory(path);
  ASSERT_TRUE(held);
  std::filesystem::rename(path, directory.file("away"));
  ASSERT_TRUE(make_own_directory(path));
  write_file(held_path(*held) + "/note", "");
  EXPECT_TRUE(std::filesystem::exists(directory.file("away/note")));
  EXPECT_FALSE(std::filesystem::exists(path + "/note"));
}

TEST(Directories, RemedyNamesTheVariableThatSetsTheFolder) {
  const auto cache = make_own_directory("/proc/nowhere");
  ASSERT_FALSE(cache);
  EXPECT_NE(cache.error().message.find("set DORAJIT_CACHE_DIR"), std::string::npos);
  const auto daemon = make_own_directory("/proc/nowhere", FilePlace::kDaemonFolder);
  ASSERT_FALSE(daemon);
  EXPECT_NE(daemon.error().message.find("set DORAJIT_DAEMON_DIR"), std::string::npos);
  EXPECT_EQ(daemon.error().message.find("DORAJIT_CACHE_DIR"), std::string::npos);
}

}  // namespace
}  // namespace dorajit::cache
