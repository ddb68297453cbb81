#include "cache/directories.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/cache/temporary_directory.h"

namespace dorajit::cache {
namespace {

TEST(Directories, CodeIsRunFromAFolderOfOurOwnOnly) {
  const TemporaryDirectory directory;
  const std::string& path = directory.path();
  ASSERT_EQ(chmod(path.c_str(), 0700), 0);
  EXPECT_TRUE(check_trusted(path));
  ASSERT_EQ(chmod(path.c_str(), 0777), 0);
  const Status refused = check_trusted(path);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(path), std::string::npos);
  EXPECT_NE(refused.error().message.find("chmod 700"), std::string::npos);
  EXPECT_FALSE(check_trusted(path + "/missing"));
}

}  // namespace
}  // namespace dorajit::cache
