#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include "cache/database/tuning_store.h"
#include "runtime/base/fork_guard.h"
#include "tests/cache/database/raw_database.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/small_disk.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

using std::chrono::milliseconds;

// On a busy machine, each of many processes may have to wait long for the others.
const TuningStoreOptions kPatient{.busy_wait = std::chrono::minutes(10)};

TEST(TuningStoreProcesses, ConcurrentColdStartsLoseNoResults) {
  constexpr int kRounds = 8;
  constexpr int kProcesses = 12;
  constexpr int kRecords = 4;
  for (int round = 0; round < kRounds; ++round) {
    const TemporaryDirectory directory;
    run_at_once(kProcesses, [&](int process) {
      const auto store = TuningStore::open(directory.file("deep/cache"), kPatient);
      CHILD_CHECK(store->persistent());
      for (int i = 0; i < kRecords; ++i) {
        const int problem = kRecords * process + i;
        store->record(sample_trials(problem, 3), sample_winner(problem));
        CHILD_CHECK(store->persistent());
        CHILD_CHECK(store->find_winner(kDevice, sample_problem(problem)));
      }
      return 0;
    });
    const auto store = TuningStore::open(directory.file("deep/cache"));
    EXPECT_EQ(store->winners().size(), static_cast<std::size_t>(kProcesses) * kRecords);
    EXPECT_EQ(store->trial_count(), kProcesses * kRecords * 3);
    EXPECT_EQ(count_names(directory.path(), "corrupt"), 0);
    EXPECT_EQ(count_names(directory.path(), ".tmp."), 0);
  }
}

TEST(TuningStoreProcesses, ManyColdStartsAllUseTheDatabase) {
  constexpr int kProcesses = 64;
  for (int round = 0; round < 3; ++round) {
    const TemporaryDirectory directory;
    run_at_once(kProcesses, [&](int process) {
      CapturedLog log;
      const auto store = TuningStore::open(directory.file("cache"), kPatient);
      for (int i = 0; i < 4; ++i) {
        (void)store->find_winner(kDevice, sample_problem(i));
        (void)store->find_history(kDevice, {}).bad_trials;
        if (process % 8 == 0) store->record(sample_trials(i, 3), sample_winner(i));
        (void)store->find_winner(kDevice, sample_problem(i), LockWait::kLong);
      }
      for (const std::string& line : log.lines()) std::fprintf(stderr, "%s\n", line.c_str());
      CHILD_CHECK(log.size() == 0);
      return 0;
    });
  }
}

TEST(TuningStoreProcesses, ConcurrentRepairsLoseNoResults) {
  for (int round = 0; round < 5; ++round) {
    const TemporaryDirectory directory;
    TuningStore::open(directory.path())->record(sample_trials(999, 5), sample_winner(999));
    std::string bytes = read_file(directory.file("tuning.db"));
    bytes.replace(0, 64, std::string(64, 'x'));
    write_file(directory.file("tuning.db"), bytes);
    run_at_once(8, [&](int process) {
      const CapturedLog quiet;
      const auto store = TuningStore::open(directory.path(), kPatient);
      store->record(sample_trials(process, 3), sample_winner(process));
      CHILD_CHECK(store->persistent());
      return 0;
    });
    EXPECT_EQ(TuningStore::open(directory.path())->winners().size(), 8U);
    EXPECT_EQ(count_names(directory.path(), "corrupt"), 1);
  }
}

TEST(TuningStoreProcesses, KillingAWriterLosesNoCommittedWinner) {
  const TemporaryDirectory directory;
  for (int round = 0; round < 5; ++round) {
    Pipe done;
    const pid_t child = start_child([&] {
      const auto store = TuningStore::open(directory.path(), kPatient);
      for (int i = 0;; ++i) {
        store->record(sample_trials(i, 2), sample_winner(1000 * round + i));
        done.send('.');
      }
      return 0;
    });
    done.close_write();
    int committed = 0;
    char byte = 0;
    while (committed < 10 + round && done.receive(byte)) ++committed;
    ::kill(child, SIGKILL);
    while (done.receive(byte)) ++committed;
    EXPECT_EQ(wait_for_child(child), 128 + SIGKILL);

    const auto store = TuningStore::open(directory.path());
    EXPECT_TRUE(store->persistent());
    for (int i = 0; i < committed; ++i) {
      EXPECT_TRUE(store->find_winner(kDevice, sample_problem(1000 * round + i))) << i;
    }
  }
  EXPECT_EQ(count_names(directory.path(), "corrupt"), 0);
}

// A process that holds the lock which `sql` takes, from the constructor until release().
class LockingProcess {
 public:
  // The lock is held for `grace` after release().
  LockingProcess(const std::string& path, const std::string& sql, milliseconds grace) {
    child_ = start_child([&] {
      release_.close_write();
      RawDatabase raw(path);
      CHILD_CHECK(raw.run(sql));
      locked_.send('.');
      char byte = 0;
      (void)release_.receive(byte);
      std::this_thread::sleep_for(grace);
      return 0;
    });
    char byte = 0;
    EXPECT_TRUE(locked_.receive(byte));
  }
  void release() { release_.close_write(); }
  int wait() const { return wait_for_child(child_); }

 private:
  Pipe locked_;
  Pipe release_;
  pid_t child_ = -1;
};

TEST(TuningStoreProcesses, ResultsOfALockedDatabaseAreWrittenLater) {
  const TemporaryDirectory directory;
  CapturedLog log;
  const auto store = TuningStore::open(directory.path(), {.busy_wait = milliseconds(20)});
  store->record(sample_trials(0, 1), sample_winner(0));

  LockingProcess other(directory.file("tuning.db"), "BEGIN IMMEDIATE", milliseconds(0));
  store->record(sample_trials(1, 2), sample_winner(1));
  store->record(sample_trials(2, 2), sample_winner(2));
  EXPECT_FALSE(store->persistent());
  EXPECT_NE(store->reason_not_persistent().find("SQLITE_BUSY"), std::string::npos);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(store->find_winner(kDevice, sample_problem(i))) << i;
  EXPECT_EQ(store->trial_count(), 5);
  EXPECT_EQ(store->winners().size(), 3U);
  EXPECT_EQ(log.size(), 1);

  other.release();
  EXPECT_EQ(other.wait(), 0);
  store->record(sample_trials(3, 2), sample_winner(3));
  EXPECT_TRUE(store->persistent());
  EXPECT_EQ(store->location(), directory.file("tuning.db"));
  EXPECT_EQ(TuningStore::open(directory.path())->winners().size(), 4U);
  EXPECT_EQ(TuningStore::open(directory.path())->trial_count(), 7);
}

TEST(TuningStoreProcesses, LongLockWaitOutlastsALockThatAShortOneDoesNot) {
  const TemporaryDirectory directory;
  CapturedLog log;
  TuningStore::open(directory.path())->record(sample_trials(1, 1), sample_winner(1));
  const auto store = TuningStore::open(directory.path());
  LockingProcess other(directory.file("tuning.db"),
                       "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE",
                       milliseconds(750));  // three short waits
  EXPECT_FALSE(store->find_winner(kDevice, sample_problem(1)));
  other.release();
  EXPECT_TRUE(TuningStore::open(directory.path())->persistent()) << "a write waits for the lock";
  EXPECT_TRUE(store->find_winner(kDevice, sample_problem(1), LockWait::kLong));
  EXPECT_EQ(other.wait(), 0);
  EXPECT_EQ(log.size(), 0) << "results are not only in memory";
}

TEST(TuningStoreProcesses, ForkedChildUsesTheDatabase) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  store->record(sample_trials(1, 2), sample_winner(1));
  const int status = run_in_child([&] {
    CHILD_CHECK(store->find_winner(kDevice, sample_problem(1)));
    store->record(sample_trials(2, 2), sample_winner(2));
    CHILD_CHECK(store->persistent());
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(store->find_winner(kDevice, sample_problem(2)));
  store->record(sample_trials(3, 2), sample_winner(3));
  EXPECT_EQ(TuningStore::open(directory.path())->winners().size(), 3U);
}

TEST(TuningStoreProcesses, ChildOfAForkDuringAnOperationUsesMemoryOnly) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  store->record({}, sample_winner(1));
  const ForkGuard another_threads_operation(Work::kSqlite);
  const int status = run_in_child([&] {
    const CapturedLog quiet;
    store->record({}, sample_winner(2));
    CHILD_CHECK(store->find_winner(kDevice, sample_problem(2)));
    CHILD_CHECK(!store->persistent());
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(store->find_winner(kDevice, sample_problem(2)));
  EXPECT_TRUE(store->persistent());
}

TEST(TuningStoreProcesses, ForkedChildHasAMemoryOfItsOwn) {
  const auto store = TuningStore::open("");
  store->record({}, sample_winner(1));
  EXPECT_EQ(run_in_child([&] {
              store->record({}, sample_winner(2));
              CHILD_CHECK(store->find_winner(kDevice, sample_problem(2)));
              return 0;
            }),
            0);
  EXPECT_TRUE(store->find_winner(kDevice, sample_problem(1)));
  EXPECT_FALSE(store->find_winner(kDevice, sample_problem(2)));
}

// Reads a database from a folder that cannot be written, with a file of mode 0444.
int serves_read_only(const std::string& cache) {
  CapturedLog log;
  const auto store = TuningStore::open(cache);
  CHILD_CHECK(store->location() == cache + "/tuning.db");
  CHILD_CHECK(!store->persistent());
  CHILD_CHECK(store->find_winner(kDevice, sample_problem(1)));
  CHILD_CHECK(store->trial_count() == 3);
  CHILD_CHECK(log.size() == 0);
  for (int i = 2; i < 5; ++i) {
    store->record(sample_trials(i, 1), sample_winner(i));
    CHILD_CHECK(store->find_winner(kDevice, sample_problem(i)));
  }
  CHILD_CHECK(store->winners().size() == 4);
  CHILD_CHECK(log.size() == 1);
  CHILD_CHECK(log.count("set DORAJIT_CACHE_DIR to a writable folder") == 1);
  CHILD_CHECK(store->claim(kDevice, sample_problem(1)));
  return 0;
}

TEST(TuningStoreProcesses, ReadOnlyFolderIsStillRead) {
  const TemporaryDirectory directory;
  TuningStore::open(directory.path())->record(sample_trials(1, 3), sample_winner(1));
  std::filesystem::permissions(directory.file("tuning.db"), std::filesystem::perms(0444));
  std::filesystem::permissions(directory.path(), std::filesystem::perms(0555));
  const int status =
      run_in_child([&] { return drop_root() ? serves_read_only(directory.path()) : kChildSkips; });
  if (status == kChildSkips) GTEST_SKIP() << "changing the user is not permitted here";
  EXPECT_EQ(status, 0);
}

TEST(TuningStoreProcesses, ReadOnlyFileSystemIsStillRead) {
  const TemporaryDirectory directory;
  const int status = run_in_child([&] {
    if (!mount_small_disk(directory.path(), "4m")) return kChildSkips;
    TuningStore::open(directory.path())->record(sample_trials(1, 3), sample_winner(1));
    if (!remount_read_only(directory.path())) return kChildSkips;
    return serves_read_only(directory.path());
  });
  if (status == kChildSkips) GTEST_SKIP() << "mounting is not permitted here";
  EXPECT_EQ(status, 0);
}

TEST(TuningStoreProcesses, FullDiskKeepsResultsInMemoryUntilThereIsSpace) {
  const TemporaryDirectory directory;
  const int status = run_in_child([&] {
    if (!mount_small_disk(directory.path(), "512k")) return kChildSkips;
    CapturedLog log;
    const auto store = TuningStore::open(directory.path());
    store->record(sample_trials(0, 3), sample_winner(0));
    CHILD_CHECK(store->persistent());
    write_file(directory.file("filler"), std::string(1 << 20, 'x'));
    for (int i = 1; i < 6; ++i) {
      store->record(sample_trials(i, 40), sample_winner(i));
      CHILD_CHECK(!store->persistent());
    }
    for (int i = 0; i < 6; ++i) CHILD_CHECK(store->find_winner(kDevice, sample_problem(i)));
    CHILD_CHECK(store->trial_count() == 203);
    CHILD_CHECK(log.size() == 1);

    std::filesystem::remove(directory.file("filler"));
    store->record({}, sample_winner(6));
    CHILD_CHECK(store->persistent());
    CHILD_CHECK(TuningStore::open(directory.path())->winners().size() == 7);
    CHILD_CHECK(TuningStore::open(directory.path())->trial_count() == 203);
    return 0;
  });
  if (status == kChildSkips) GTEST_SKIP() << "mounting is not permitted here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace dorajit::cache
