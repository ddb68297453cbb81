// Read-only databases besides the user's own, as in an installation.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "cache/database/overlay_databases.h"
#include "cache/database/tuning_store.h"
#include "runtime/base/dynamic_library.h"
#include "tests/cache/database/raw_database.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/hostile/hostile_users.h"

namespace dorajit::hostile {
namespace {

using cache::CapturedLog;
using cache::Trust;
using cache::TuningStore;

class HostileDatabases : public testing::Test {
 protected:
  HostileDatabases() {
    std::filesystem::create_directory(folder_);
    TuningStore::open(directory_.file("made"))->record({}, cache::sample_winner(1));
    cache::RawDatabase(directory_.file("made/tuning.db")).run("PRAGMA wal_checkpoint(TRUNCATE)");
    std::filesystem::rename(directory_.file("made/tuning.db"), file_);
  }

  [[nodiscard]] bool serve(const Trust& trust = cache::kOverlayTrust) const {
    const auto store = TuningStore::open(
        "", {.overlays = cache::databases_in(folder_, trust), .overlay_trust = trust});
    return store->find_overlay_winner(cache::kDevice, cache::sample_problem(1)).has_value();
  }
  // Expects one warning that contains the path and the reason.
  void expect_refused(const std::string& path, const char* said) const {
    CapturedLog log;
    EXPECT_FALSE(serve());
    EXPECT_EQ(log.size(), 1);
    EXPECT_EQ(log.count(path + " " + said), 1);
    EXPECT_EQ(log.count("DORAJIT_DATABASES"), 1);
  }

  cache::TemporaryDirectory directory_;
  const std::string folder_ = directory_.file("databases");
  const std::string file_ = folder_ + "/a.db";
};

TEST_F(HostileDatabases, WritableByEveryUserAreNotRead) {
  EXPECT_TRUE(serve());
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  expect_refused(folder_, "can be written by every user");
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(file_.c_str(), 0666), 0);
  expect_refused(file_, "can be written by every user");
}

TEST_F(HostileDatabases, BehindLinksAreNotRead) {
  std::filesystem::rename(file_, directory_.file("elsewhere.db"));
  std::filesystem::create_symlink(directory_.file("elsewhere.db"), file_);
  expect_refused(file_, "is a symbolic link");
}

TEST_F(HostileDatabases, WarningsNameTheVariableThatSetsThem) {
  if (!is_root()) GTEST_SKIP() << "only root can become another user";
  // It belongs to root, which is trusted, and is closed to others.
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
  const int status = run_as(kNobody, [&] {
    CapturedLog log;
    CHILD_CHECK(!serve());
    CHILD_CHECK(log.count(folder_ + ": Permission denied; set DORAJIT_DATABASES to") == 1);
    CHILD_CHECK(log.count("DORAJIT_CACHE_DIR") == 0);
    return 0;
  });
  if (status == cache::kChildSkips) GTEST_SKIP() << "becoming another user is not permitted here";
  EXPECT_EQ(status, 0);
}

TEST_F(HostileDatabases, OfAnotherUserAreReadOnlyIfThatUserOwnsTheLibrary) {
  if (!is_root()) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(::chown(file_.c_str(), kAttacker, kAttacker), 0);
  expect_refused(file_, "belongs to user 54321");
  ASSERT_EQ(::chown(folder_.c_str(), kAttacker, kAttacker), 0);
  expect_refused(folder_, "belongs to user 54321");
  Trust trust = cache::kOverlayTrust;
  trust.owner = kAttacker;
  EXPECT_TRUE(serve(trust));
}

TEST(OwnerOfThisCode, IsTheOwnerOfTheFile) {
  struct stat found{};
  ASSERT_EQ(::stat("/proc/self/exe", &found), 0);
  EXPECT_EQ(owner_of_this_code(), found.st_uid);
}

}  // namespace
}  // namespace dorajit::hostile
