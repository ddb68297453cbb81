// Notes, locks and the journal in a cache folder that other users have modified
// (docs/security.md): links are not followed, and no process waits for ever.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <format>
#include <map>
#include <ostream>
#include <utility>

#include "cache/artifacts/artifact_files.h"
#include "cache/database/tuning_store.h"
#include "cache/records/launch_journal.h"
#include "tests/fakes/captured_log.h"
#include "tests/hostile/attacks.h"

namespace dorajit::hostile {
namespace {

namespace fs = std::filesystem;
using cache::ArtifactFiles;
using cache::CapturedLog;
using cache::LaunchJournal;
using cache::TuningStore;

const std::string kKey(32, 'a');
const kernels::Config kConfig{{kernels::kColumnsOfProgram, 7}};

// One of the folders, and its use by a process.
struct Subfolder {
  const char* name;
  // Leaves one file there, as a process that has ended.
  void (*leave)(const std::string& cache_dir);
  // Whether the file of that process has an effect.
  bool (*counts)(const std::string& cache_dir);
  // Whether work that uses the folder succeeds; creates the file again.
  bool (*work)(const std::string& cache_dir);
};

void leave_note(const std::string& path) { ArtifactFiles(path).insert_note(kKey, "note"); }
bool has_note(const std::string& path) { return ArtifactFiles(path).find_note(kKey) == "note"; }
bool work_with_notes(const std::string& path) {
  ArtifactFiles(path).insert_note(kKey, "note");
  (void)ArtifactFiles(path).find_note(kKey);
  return true;
}

bool claims(const std::string& path) {
  return TuningStore::open(path)->claim("device", "problem").has_value();
}
void leave_lock(const std::string& path) { (void)claims(path); }

// A process that ends during a launch.
void leave_entry(const std::string& path) {
  (void)LaunchJournal::open(path).release()->enter("scope", "problem", kConfig).release();
}
bool has_casualty(const std::string& path) {
  return LaunchJournal::open(path)->crashed_configs("scope") == std::vector{kConfig};
}
bool work_with_journal(const std::string& path) {
  const auto journal = LaunchJournal::open(path);
  journal->enter("another scope", "problem", kConfig).reset();
  const bool is_empty = journal->crashed_configs("another scope").empty();
  journal->forget("scope", std::span(&kConfig, 1));
  return is_empty && journal->crashed_configs("scope").empty();
}

constexpr Subfolder kSubfolders[] = {
    {"notes", leave_note, has_note, work_with_notes},
    // A lock has an effect if its holder is respected.
    {"locks", leave_lock, [](const std::string& path) { return !claims(path); }, claims},
    {"journal", leave_entry, has_casualty, work_with_journal},
};

// An attack on the folder or on the file in it.
struct Attack {
  const char* name;
  bool on_file;
  What what;
  unsigned mode;
  const char* said;
};

constexpr Attack kAttacks[] = {
    {"FolderOfAnother", false, What::kOwner, 0, kForeign},
    {"FolderOfEverybody", false, What::kMode, 0777, kEverybody},
    {"FolderOfAGroup", false, What::kMode, 0770, kGroup},
    {"FolderElsewhere", false, What::kLink, 0, kLinked},
    {"FifoForFolder", false, What::kFifo, 0600, nullptr},
    {"FileForFolder", false, What::kPlainFile, 0, nullptr},
    {"FileOfAnother", true, What::kOwner, 0, kForeign},
    {"FileOfEverybody", true, What::kMode, 0666, kEverybody},
    {"FileOfAGroup", true, What::kMode, 0660, kGroup},
    {"FileElsewhere", true, What::kLink, 0, kLinked},
    {"FifoForFile", true, What::kFifo, 0600, nullptr},
    {"ReadOnlyFifoForFile", true, What::kFifo, 0400, nullptr},
    {"FolderForFile", true, What::kDirectory, 0, nullptr},
    {"EndlessFile", true, What::kEndless, 0, nullptr},
};

struct Case {
  uid_t victim;
  Subfolder subfolder;
  Attack attack;
};

// GoogleTest finds it by this name. NOLINTNEXTLINE(readability-identifier-naming)
void PrintTo(const Case& one, std::ostream* out) {
  *out << one.subfolder.name << " " << one.attack.name;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Subfolder& subfolder : kSubfolders) {
    for (const Attack& attack : kAttacks) {
      for (const uid_t victim : {uid_t{0}, ordinary_user()}) {
        all.push_back({victim, subfolder, attack});
      }
    }
  }
  return all;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.subfolder.name;
  name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return std::format("{}{}To{}", name, info.param.attack.name,
                     info.param.victim == 0 ? "Root" : "User");
}

// Every name at and below a path, with data that shows a modification.
std::map<std::string, std::pair<std::string, fs::file_time_type>> snapshot(
    const std::string& path) {
  std::map<std::string, std::pair<std::string, fs::file_time_type>> found;
  const auto add = [&](const fs::path& one) {
    found[one] = {fs::is_regular_file(one) ? cache::read_file(one) : "", fs::last_write_time(one)};
  };
  if (fs::exists(path)) add(path);
  if (!fs::is_directory(path)) return found;
  for (const auto& entry : fs::recursive_directory_iterator(path)) add(entry.path());
  return found;
}

// Ends a process that waits or reads for ever.
void limit_time() {
  constexpr rlimit kSeconds{5, 5};
  ::setrlimit(RLIMIT_CPU, &kSeconds);
  ::alarm(20);
}

class HostileSubfolderProcess : public testing::TestWithParam<Case> {
 protected:
  HostileSubfolderProcess() { EXPECT_EQ(::chmod(directory_.path().c_str(), 0777), 0); }

  [[nodiscard]] std::string path() const { return directory_.file("cache"); }
  [[nodiscard]] std::string beside() const { return directory_.file("elsewhere"); }

  void attack() {
    const auto& [victim, subfolder, attack] = GetParam();
    ASSERT_EQ(run_as(victim,
                     [&, leave = subfolder.leave] {
                       ::umask(0022);
                       leave(path());
                       return 0;
                     }),
              0);
    std::string target = path() + "/" + subfolder.name;
    if (attack.on_file) target = fs::directory_iterator(target)->path();
    apply(attack.what, attack.mode, target, beside(), victim);
    // Other users who can open a lock can hold it.
    if (!is_foreign(attack.what)) return;
    if (!attack.on_file && std::string_view(subfolder.name) == "locks") {
      target = fs::directory_iterator(target)->path();
    }
    held_ = FileDescriptor(::open(target.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    ASSERT_EQ(::flock(held_.get(), LOCK_EX | LOCK_NB), 0);
  }

 private:
  cache::TemporaryDirectory directory_;
  FileDescriptor held_;
};

TEST_P(HostileSubfolderProcess, IsNotFollowedAndCallsSucceed) {
  const auto& [victim, subfolder, attack] = GetParam();
  if (const auto reason = why_not(victim, attack.what)) GTEST_SKIP() << *reason;
  ASSERT_NO_FATAL_FAILURE(this->attack());
  const auto before = snapshot(beside());
  EXPECT_EQ(run_as(victim,
                   [&, &folder = subfolder, &done = attack] {
                     limit_time();
                     CapturedLog log;
                     CHILD_CHECK(!is_foreign(done.what) || !folder.counts(path()));
                     CHILD_CHECK(folder.work(path()));
                     CHILD_CHECK(folder.work(path()));
                     CHILD_CHECK(done.said == nullptr || log.count(done.said) == 1);
                     return 0;
                   }),
            0);
  EXPECT_EQ(snapshot(beside()), before) << "files outside of the folder were used";
}

INSTANTIATE_TEST_SUITE_P(Attacks, HostileSubfolderProcess, testing::ValuesIn(cases()), case_name);

TEST(HostileSubfolder, NoteWritableByOthersIsReplaced) {
  const cache::TemporaryDirectory directory;
  leave_note(directory.path());
  ASSERT_EQ(::chmod(directory.file("notes/" + kKey).c_str(), 0666), 0);
  const CapturedLog quiet;
  EXPECT_FALSE(has_note(directory.path()));
  leave_note(directory.path());
  EXPECT_TRUE(has_note(directory.path()));
}

TEST(HostileSubfolder, EntryIsRemovedFromTheFolderInWhichItWasCreated) {
  const cache::TemporaryDirectory directory;
  const std::string path = directory.file("cache");
  auto journal = LaunchJournal::open(path);
  auto entry = journal->enter("scope", "problem", kConfig);
  const std::string name = fs::directory_iterator(path + "/journal")->path().filename();
  fs::rename(path, directory.file("moved"));
  fs::create_directories(path + "/journal");
  cache::write_file(path + "/journal/" + name, "of another");
  entry.reset();
  journal.reset();
  EXPECT_EQ(cache::read_file(path + "/journal/" + name), "of another");
  EXPECT_FALSE(cache::file_exists(directory.file("moved/journal/" + name)));
}

}  // namespace
}  // namespace dorajit::hostile
