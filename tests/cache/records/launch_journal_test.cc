#include "cache/records/launch_journal.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/fakes/child_process.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

class LaunchJournalTest : public testing::Test {
 protected:
  const TemporaryDirectory folder_;
  const std::string& directory_ = folder_.path();
};

// In a child process, which ends without destructors.
template <class Work>
void run_and_end(Work work) {
  run_in_child([&] {
    work();
    return 0;
  });
}

TEST_F(LaunchJournalTest, FinishedLaunchIsNotACrash) {
  const kernels::Config config{{kernels::kColumnsOfProgram, 7}};
  run_and_end([&] {
    auto* journal = LaunchJournal::open(directory_).release();  // leaked: no destructor runs
    journal->enter("scope", "problem", config).reset();
  });
  EXPECT_TRUE(LaunchJournal::open(directory_)->crashed_configs("scope").empty());
}

TEST_F(LaunchJournalTest, EntryOfADeadProcessIsACrashUntilItIsForgotten) {
  const kernels::Config config{{kernels::kColumnsOfProgram, 7}};
  run_and_end([&] {
    (void)LaunchJournal::open(directory_).release()->enter("scope", "problem", config).release();
  });
  const auto journal = LaunchJournal::open(directory_);
  EXPECT_EQ(journal->crashed_configs("scope"), std::vector{config});
  EXPECT_TRUE(journal->crashed_configs("another scope").empty());
  journal->forget("another scope", std::vector{config});
  journal->forget("scope", std::vector{kernels::Config{{kernels::kColumnsOfProgram, 8}}});
  EXPECT_EQ(journal->crashed_configs("scope"), std::vector{config});
  journal->forget("scope", std::vector{config});
  EXPECT_TRUE(journal->crashed_configs("scope").empty());
}

TEST_F(LaunchJournalTest, EntryOfARunningProcessIsNotACrash) {
  const auto other = LaunchJournal::open(directory_);
  const auto entry = other->enter("scope", "problem", {});
  const auto journal = LaunchJournal::open(directory_);
  EXPECT_TRUE(journal->crashed_configs("scope").empty());
  journal->forget("scope", std::vector<kernels::Config>(1));
  EXPECT_FALSE(std::filesystem::is_empty(directory_ + "/journal"));
}

// One object serves the threads that verify winners and the one that tunes.
TEST_F(LaunchJournalTest, LaunchThatEndsLeavesOnlyItsOwnEntry) {
  const kernels::Config ended{{kernels::kColumnsOfProgram, 7}};
  const kernels::Config running{{kernels::kColumnsOfProgram, 8}};
  run_and_end([&] {
    auto* journal = LaunchJournal::open(directory_).release();
    auto first = journal->enter("scope", "problem", ended);
    (void)journal->enter("scope", "problem", running).release();
    first.reset();
  });
  EXPECT_EQ(LaunchJournal::open(directory_)->crashed_configs("scope"), std::vector{running});
}

TEST_F(LaunchJournalTest, FileOfAFinishedLaunchServesTheNextOne) {
  const auto journal = LaunchJournal::open(directory_);
  for (int i = 0; i < 3; ++i) journal->enter("scope", "problem", {}).reset();
  const std::filesystem::directory_iterator files(directory_ + "/journal");
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(LaunchJournalTest, IncompleteEntryIsIgnoredAndRemoved) {
  std::filesystem::create_directories(directory_ + "/journal");
  const std::string path = directory_ + "/journal/1-1-1.entry";
  write_file(path, "dorajit launch journal 1\nscope\npro");
  EXPECT_TRUE(LaunchJournal::open(directory_)->crashed_configs("scope").empty());
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace dorajit::cache
