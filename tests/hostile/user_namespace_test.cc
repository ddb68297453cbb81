// Files of users whom a user namespace does not map: they show the overflow id, as `nobody` has it.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <format>
#include <fstream>
#include <functional>
#include <string>

#include "cache/artifacts/artifact_files.h"
#include "cache/database/tuning_store.h"
#include "cache/files/directories.h"
#include "runtime/base/files.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/hostile/hostile_users.h"

namespace dorajit::hostile {
namespace {

namespace fs = std::filesystem;
using cache::TrustedDirectory;

const std::string kKey(32, 'a');

// Enters a namespace that maps only this user, as `inside`.
bool enter_namespace(uid_t inside) {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  ::prctl(PR_SET_DUMPABLE, 1);  // after a change of the user, its maps belong to root
  if (::unshare(CLONE_NEWUSER) != 0) return false;
  const auto write = [](const char* path, const std::string& text) {
    return static_cast<bool>(std::ofstream(path) << text << std::flush);
  };
  return write("/proc/self/setgroups", "deny") &&
         write("/proc/self/gid_map", std::format("{} {} 1", inside, group)) &&
         write("/proc/self/uid_map", std::format("{} {} 1", inside, user)) && ::geteuid() == inside;
}

class HostileNamespaceProcess : public testing::Test {
 protected:
  HostileNamespaceProcess() { ::chmod(directory_.path().c_str(), 0777); }

  // A cache folder with an artifact and a winner that every user can read.
  void fill_as(uid_t user) const {
    const int filled = run_as(user, [&] {
      ::umask(0022);
      cache::ArtifactFiles(path()).insert(kKey, {"code", {}});
      cache::TuningStore::open(path(), {})->record({}, cache::sample_winner(1));
      return 0;
    });
    ASSERT_EQ(filled, 0);
    ASSERT_EQ(std::system(std::format("chmod -R a+rX '{}'", path()).c_str()), 0);
  }

  // Runs `body` as that user in a namespace where the id is `inside`.
  void expect_inside(uid_t user, uid_t inside, const std::function<int()>& body) const {
    const int result =
        run_as(user, [&] { return enter_namespace(inside) ? body() : int{cache::kChildSkips}; });
    if (result == cache::kChildSkips) GTEST_SKIP() << "user namespaces are not permitted here";
    EXPECT_EQ(result, 0);
  }

  [[nodiscard]] std::string path() const { return directory_.file("cache"); }

  cache::TemporaryDirectory directory_;
};

TEST_F(HostileNamespaceProcess, FilesOfAnUnmappedUserAreNotUsed) {
  if (!is_root()) GTEST_SKIP() << "only root can be another user";
  fill_as(kAttacker);
  expect_inside(ordinary_user(), kNobody, [&] {
    cache::CapturedLog log;
    CHILD_CHECK(!cache::ArtifactFiles(path()).find(kKey));
    const auto store = cache::TuningStore::open(path(), {});
    CHILD_CHECK(!store->find_winner(cache::kDevice, cache::sample_problem(1)));
    CHILD_CHECK(log.count("stands for every user that this user namespace does not map") > 0);
    CHILD_CHECK(!cache::open_own_directory(path()));
    // Nor if the library seems to belong to that user.
    CHILD_CHECK(!TrustedDirectory::open(path(), {.owner = kNobody}));
    return 0;
  });
}

TEST_F(HostileNamespaceProcess, NobodyKeepsResultsInMemory) {
  fill_as(ordinary_user());
  expect_inside(ordinary_user(), kNobody, [&] {
    const cache::CapturedLog quiet;
    CHILD_CHECK(!cache::ArtifactFiles(path()).find(kKey));
    const auto store = cache::TuningStore::open(path(), {});
    CHILD_CHECK(store->location() == "memory");
    store->record({}, cache::sample_winner(2));
    CHILD_CHECK(store->find_winner(cache::kDevice, cache::sample_problem(2)));
    CHILD_CHECK(!PrivateFolder::make());
    return 0;
  });
}

TEST_F(HostileNamespaceProcess, MappedUserKeepsItsCache) {
  fill_as(ordinary_user());
  expect_inside(ordinary_user(), 1000, [&] {
    CHILD_CHECK(cache::ArtifactFiles(path()).find(kKey));
    const auto store = cache::TuningStore::open(path(), {});
    CHILD_CHECK(store->find_winner(cache::kDevice, cache::sample_problem(1)));
    CHILD_CHECK(PrivateFolder::make());
    return 0;
  });
}

TEST_F(HostileNamespaceProcess, UnmappedGroupIsNotTrusted) {
  if (!is_root()) GTEST_SKIP() << "only root can give files to a group";
  fs::create_directory(path());
  ASSERT_EQ(::chown(path().c_str(), kNobody, kSharedGroup), 0);
  ASSERT_EQ(::chmod(path().c_str(), 02770), 0);
  const auto is_trusted = [&] {
    const auto folder = TrustedDirectory::open(path(), {.group = true});
    return folder.has_value() && folder->has_value();
  };
  EXPECT_EQ(run_as(kNobody, [&] { return is_trusted() ? 0 : 1; }), 0);
  expect_inside(kNobody, 1000, [&] { return is_trusted() ? 1 : 0; });
}

}  // namespace
}  // namespace dorajit::hostile
