// The premise of this folder: root becomes another user, whose rights then hold.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cache/child_process.h"
#include "tests/cache/temporary_directory.h"

namespace dorajit::cache {
namespace {

TEST(HostileUsersProcess, AnotherUserCannotWriteAPrivateFolder) {
  const TemporaryDirectory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 0700), 0);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  EXPECT_EQ(run_in_child([&] {
              CHILD_CHECK(drop_root());
              CHILD_CHECK(::access(directory.path().c_str(), W_OK) != 0);
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace dorajit::cache
