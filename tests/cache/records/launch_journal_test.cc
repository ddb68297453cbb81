#include "cache/records/launch_journal.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace dorajit::cache {
namespace {

class LaunchJournalTest : public testing::Test {
 protected:
  LaunchJournalTest() {
    char name[] = "/tmp/dorajit-journal-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~LaunchJournalTest() override { std::filesystem::remove_all(directory_); }

  // Runs `work` in a child process.
  template <class Work>
  static pid_t fork_child(Work work) {
    const pid_t child = ::fork();
    if (child == 0) {
      work();
      ::_exit(0);
    }
    return child;
  }

  static void wait_for(pid_t child) { ::waitpid(child, nullptr, 0); }

  std::string directory_;
};

TEST_F(LaunchJournalTest, FinishedLaunchIsNotACrash) {
  const kernels::Config config{{kernels::kColumnsOfProgram, 7}};
  wait_for(fork_child([&] {
    auto* journal = LaunchJournal::open(directory_).release();  // leaked: no destructor runs
    journal->enter("scope", "problem", config).reset();
  }));
  EXPECT_TRUE(LaunchJournal::open(directory_)->crashed_configs("scope").empty());
}

TEST_F(LaunchJournalTest, EntryOfADeadProcessIsACrashUntilItIsForgotten) {
  const kernels::Config config{{kernels::kColumnsOfProgram, 7}};
  wait_for(fork_child([&] {
    (void)LaunchJournal::open(directory_).release()->enter("scope", "problem", config).release();
  }));
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
  wait_for(fork_child([&] {
    auto* journal = LaunchJournal::open(directory_).release();
    auto first = journal->enter("scope", "problem", ended);
    (void)journal->enter("scope", "problem", running).release();
    first.reset();
  }));
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
  FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("dorajit launch journal 1\nscope\npro", file);
  std::fclose(file);
  EXPECT_TRUE(LaunchJournal::open(directory_)->crashed_configs("scope").empty());
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace dorajit::cache
