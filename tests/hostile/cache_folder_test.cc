// Files and folders of the cache that other users may have written (docs/security.md).
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <format>
#include <ostream>

#include "cache/artifacts/artifact_files.h"
#include "cache/database/tuning_store.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/hostile/attacks.h"
#include "tests/hostile/hostile_users.h"

namespace dorajit::hostile {
namespace {

using cache::ArtifactFiles;
using cache::CapturedLog;
using cache::Trust;
using cache::TuningStore;

const std::string kKey(32, 'a');

// An attack on a file or folder of the cache, and the expected message.
struct Attack {
  const char* name;
  const char* path;  // relative to the cache folder; empty: the folder itself
  What what;
  unsigned mode;
  const char* said;
};

constexpr const char* kFile = "artifacts/aa/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.art";

constexpr Attack kFolderAttacks[] = {
    {"FolderOfAnother", "", What::kOwner, 0, kForeign},
    {"FolderOfEverybody", "", What::kMode, 0777, kEverybody},
    {"StickyFolderOfEverybody", "", What::kMode, 01777, kEverybody},
    {"FolderOfAGroup", "", What::kMode, 0770, kGroup},
};
constexpr Attack kCodeAttacks[] = {
    {"ArtifactsOfAnother", "artifacts", What::kOwner, 0, kForeign},
    {"ArtifactsOfEverybody", "artifacts", What::kMode, 0777, kEverybody},
    {"ArtifactsOfAGroup", "artifacts", What::kMode, 0770, kGroup},
    {"ArtifactsElsewhere", "artifacts", What::kLink, 0, kLinked},
    {"SubfolderOfAnother", "artifacts/aa", What::kOwner, 0, kForeign},
    {"SubfolderOfEverybody", "artifacts/aa", What::kMode, 0777, kEverybody},
    {"SubfolderOfAGroup", "artifacts/aa", What::kMode, 0770, kGroup},
    {"SubfolderElsewhere", "artifacts/aa", What::kLink, 0, kLinked},
    {"FileOfAnother", kFile, What::kOwner, 0, kForeign},
    {"FileOfEverybody", kFile, What::kMode, 0666, kEverybody},
    {"FileOfAGroup", kFile, What::kMode, 0660, kGroup},
    {"FileElsewhere", kFile, What::kLink, 0, kLinked},
};
constexpr Attack kWinnerAttacks[] = {
    {"DatabaseOfAnother", "tuning.db", What::kOwner, 0, kForeign},
    {"DatabaseOfEverybody", "tuning.db", What::kMode, 0666, kEverybody},
    {"DatabaseOfAGroup", "tuning.db", What::kMode, 0660, kGroup},
    {"DatabaseElsewhere", "tuning.db", What::kLink, 0, kLinked},
    {"WalOfAnother", "tuning.db-wal", What::kOwner, 0, kForeign},
    {"WalElsewhere", "tuning.db-wal", What::kLink, 0, kLinked},
};

struct Case {
  uid_t victim;
  Attack attack;
};

// GoogleTest finds it by this name. NOLINTNEXTLINE(readability-identifier-naming)
void PrintTo(const Case& one, std::ostream* out) { *out << one.attack.name; }

std::vector<Case> cases(std::initializer_list<std::span<const Attack>> attacks) {
  std::vector<Case> all;
  for (const auto& some : attacks) {
    for (const Attack& attack : some) {
      for (const uid_t victim : {uid_t{0}, ordinary_user()}) all.push_back({victim, attack});
    }
  }
  return all;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::format("{}To{}", info.param.attack.name, info.param.victim == 0 ? "Root" : "User");
}

std::unique_ptr<TuningStore> open_store(const std::string& folder, const Trust& trust = {}) {
  return TuningStore::open(folder, {.trust = trust});
}

bool has_winner(const std::string& folder, const Trust& trust = {}) {
  return open_store(folder, trust)
      ->find_winner(cache::kDevice, cache::sample_problem(1))
      .has_value();
}

// A cache folder with an artifact and a winner, created by its victim in a folder that every user
// may write.
class HostileCache {
 public:
  explicit HostileCache(uid_t victim) : victim_(victim) {
    EXPECT_EQ(::chmod(directory_.path().c_str(), 0777), 0);
    EXPECT_EQ(run_as(victim_,
                     [&] {
                       ::umask(0022);
                       ArtifactFiles(path()).insert(kKey, {"own code", {}});
                       open_store(path())->record({}, cache::sample_winner(1));
                       CHILD_CHECK(ArtifactFiles(path()).find(kKey));
                       CHILD_CHECK(has_winner(path()));
                       return 0;
                     }),
              0);
  }

  [[nodiscard]] std::string path() const { return directory_.file("cache"); }
  [[nodiscard]] std::string file(const std::string& name) const {
    return name.empty() ? path() : path() + "/" + name;
  }
  [[nodiscard]] std::string beside() const { return directory_.file("elsewhere"); }

  void suffer(const Attack& attack) const {
    const std::string target = file(attack.path);
    if (!cache::file_exists(target)) cache::write_file(target, "planted");
    apply(attack.what, attack.mode, target, beside());
  }

 private:
  uid_t victim_;
  cache::TemporaryDirectory directory_;
};

class HostileCodeProcess : public testing::TestWithParam<Case> {};
class HostileWinnersProcess : public testing::TestWithParam<Case> {};

TEST_P(HostileCodeProcess, IsNotReadAndOneWarningGivesTheReason) {
  const auto& [victim, attack] = GetParam();
  if (const auto reason = why_not(victim, attack.what)) GTEST_SKIP() << *reason;
  const HostileCache cache(victim);
  cache.suffer(attack);
  EXPECT_EQ(run_as(victim,
                   [&] {
                     CapturedLog log;
                     ArtifactFiles files(cache.path());
                     for (int i = 0; i < 3; ++i) CHILD_CHECK(!files.find(kKey));
                     CHILD_CHECK(log.size() == 1);
                     CHILD_CHECK(log.count(attack.said) == 1);
                     CHILD_CHECK(log.count(cache.file(attack.path)) == 1);
                     CHILD_CHECK(log.count("DORAJIT_CACHE_DIR") == 1);
                     return 0;
                   }),
            0);
}

TEST_P(HostileWinnersProcess, AreNotReadAndResultsStayInMemory) {
  const auto& [victim, attack] = GetParam();
  if (const auto reason = why_not(victim, attack.what)) GTEST_SKIP() << *reason;
  const HostileCache cache(victim);
  cache.suffer(attack);
  EXPECT_EQ(run_as(victim,
                   [&] {
                     CapturedLog log;
                     const auto store = open_store(cache.path());
                     const auto find = [&](int i) {
                       return store->find_winner(cache::kDevice, cache::sample_problem(i));
                     };
                     CHILD_CHECK(!find(1));
                     CHILD_CHECK(store->location() == "memory");
                     store->record({}, cache::sample_winner(2));
                     CHILD_CHECK(find(2));
                     CHILD_CHECK(log.size() == 1);
                     CHILD_CHECK(log.count(attack.said) == 1);
                     CHILD_CHECK(log.count(cache.file(attack.path)) == 1);
                     return 0;
                   }),
            0);
}

INSTANTIATE_TEST_SUITE_P(Attacks, HostileCodeProcess,
                         testing::ValuesIn(cases({kFolderAttacks, kCodeAttacks})), case_name);
INSTANTIATE_TEST_SUITE_P(Attacks, HostileWinnersProcess,
                         testing::ValuesIn(cases({kFolderAttacks, kWinnerAttacks})), case_name);

TEST(HostileCacheProcess, ArtifactsOfALinkedFolderAreNeitherWrittenNorEvicted) {
  const HostileCache cache(::geteuid());
  cache.suffer({"", "artifacts", What::kLink, 0, ""});
  const CapturedLog quiet;
  ArtifactFiles files(cache.path(), 1);
  files.insert(std::string(32, 'b'), {"code", {}});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(cache.beside()), {}), 1);
  EXPECT_TRUE(cache::file_exists(cache.beside() + "/aa/" + kKey + ".art"));
}

TEST(HostileCacheProcess, FileOfAnotherUserInAnOwnFolderIsReplaced) {
  if (!is_root()) GTEST_SKIP() << "only root can give files away";
  const HostileCache cache(0);
  cache.suffer({"", kFile, What::kOwner, 0, ""});
  const CapturedLog quiet;
  ArtifactFiles files(cache.path());
  EXPECT_FALSE(files.find(kKey));
  files.insert(kKey, {"new code", {}});
  EXPECT_EQ(files.find(kKey).value().code, "new code");
}

TEST(HostileCacheProcess, FilesOfRootAreUsedByUsersWhoMayReadThem) {
  if (!is_root()) GTEST_SKIP() << "only root can be another user";
  const HostileCache cache(0);
  for (const char* name : {"", "artifacts", "artifacts/aa"}) {
    ASSERT_EQ(::chmod(cache.file(name).c_str(), 0755), 0);
  }
  for (const char* name : {kFile, "tuning.db"}) {
    ASSERT_EQ(::chmod(cache.file(name).c_str(), 0644), 0);
  }
  EXPECT_EQ(run_as(kNobody,
                   [&] {
                     CHILD_CHECK(ArtifactFiles(cache.path()).find(kKey));
                     CHILD_CHECK(has_winner(cache.path()));
                     return 0;
                   }),
            0);
}

TEST(HostileCacheProcess, GroupIsTrustedIfTheUserSetsTheVariable) {
  const HostileCache cache(::geteuid());
  const Trust group{.group = true};
  const CapturedLog quiet;
  for (const char* name : {"", "artifacts", "artifacts/aa", kFile, "tuning.db"}) {
    ASSERT_EQ(::chmod(cache.file(name).c_str(), 0770), 0);
    EXPECT_TRUE(ArtifactFiles(cache.path(), 1000, group).find(kKey)) << name;
    EXPECT_TRUE(has_winner(cache.path(), group)) << name;
  }
  ASSERT_EQ(::chmod(cache.path().c_str(), 0777), 0);
  EXPECT_FALSE(ArtifactFiles(cache.path(), 1000, group).find(kKey));
  EXPECT_FALSE(has_winner(cache.path(), group));
}

TEST(HostileCacheProcess, MembersOfATrustedGroupShareAFolder) {
  if (!is_root()) GTEST_SKIP() << "only root can be two users of a group";
  const cache::TemporaryDirectory directory;
  const std::string path = directory.file("cache");
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  std::filesystem::create_directory(path);
  ASSERT_EQ(::chown(path.c_str(), 0, kSharedGroup), 0);
  ASSERT_EQ(::chmod(path.c_str(), 02770), 0);
  const Trust group{.group = true};
  ASSERT_EQ(run_as(kAttacker,
                   [&] {
                     ::umask(0022);
                     ArtifactFiles(path, 1000, group).insert(kKey, {"code of a member", {}});
                     open_store(path, group)->record({}, cache::sample_winner(1));
                     return 0;
                   }),
            0);
  EXPECT_EQ(run_as(kNobody,
                   [&] {
                     CHILD_CHECK(ArtifactFiles(path, 1000, group).find(kKey));
                     CHILD_CHECK(has_winner(path, group));
                     open_store(path, group)->record({}, cache::sample_winner(2));
                     const CapturedLog quiet;
                     CHILD_CHECK(!ArtifactFiles(path).find(kKey));
                     CHILD_CHECK(!has_winner(path));
                     return 0;
                   }),
            0);
  EXPECT_EQ(open_store(path, group)->winners().size(), 2U);
  ASSERT_EQ(::chown((path + "/" + kFile).c_str(), kAttacker, kOtherGroup), 0);
  const CapturedLog quiet;
  EXPECT_FALSE(ArtifactFiles(path, 1000, group).find(kKey));
}

// Every user may write the parent of the cache folder, and therefore rename its contents.
TEST(HostileCacheProcess, FolderReplacedDuringUseIsNeverRead) {
  if (!is_root()) GTEST_SKIP() << "only root can be another user";
  const HostileCache cache(kNobody);
  const std::string evil = cache.path() + ".evil";
  ASSERT_EQ(run_as(kAttacker,
                   [&] {
                     ArtifactFiles(evil).insert(kKey, {"evil code", {}});
                     cache::Winner winner = cache::sample_winner(1);
                     winner.median_ns = 1;
                     open_store(evil)->record({}, winner);
                     for (const auto& entry : std::filesystem::recursive_directory_iterator(evil)) {
                       ::chmod(entry.path().c_str(), entry.is_directory() ? 0755 : 0644);
                     }
                     return ::chmod(evil.c_str(), 0755);
                   }),
            0);
  const std::string own = cache.path() + ".own";
  const pid_t attacker = cache::start_child([&] {
    if (!become(kAttacker)) return cache::kChildSkips;
    for (;;) {
      (void)::rename(cache.path().c_str(), own.c_str());
      (void)::rename(evil.c_str(), cache.path().c_str());
      ::usleep(100);
      (void)::rename(cache.path().c_str(), evil.c_str());
      (void)::rename(own.c_str(), cache.path().c_str());
      ::usleep(100);
    }
  });
  EXPECT_EQ(
      run_as(kNobody,
             [&] {
               const CapturedLog quiet;
               ArtifactFiles files(cache.path());
               const auto store = open_store(cache.path());
               int found = 0;
               for (int i = 0; i < 1000; ++i) {
                 const auto code = files.find(kKey);
                 CHILD_CHECK(!code || code->code == "own code");
                 const auto winner = store->find_winner(cache::kDevice, cache::sample_problem(1));
                 CHILD_CHECK(!winner || winner->median_ns == cache::sample_winner(1).median_ns);
                 if (code && winner) ++found;
               }
               CHILD_CHECK(found > 0);
               return 0;
             }),
      0);
  ::kill(attacker, SIGKILL);
  cache::wait_for_child(attacker);
}

}  // namespace
}  // namespace dorajit::hostile
