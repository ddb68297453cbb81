// The status of a store whose lookup could not read the database.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>

#include "cache/database/tuning_store.h"
#include "tests/cache/database/raw_database.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/small_disk.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(UnreadableDatabase, FileSizeLimitEndsNoProcess) {
  const TemporaryDirectory directory;
  TuningStore::open(directory.path())->record(sample_trials(1, 2), sample_winner(1));
  const int status = run_in_child([&] {
    std::signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{16384, 16384};
    CHILD_CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    const auto store = TuningStore::open(directory.path());
    for (int i = 2; i < 100; ++i) store->record(sample_trials(i, 20), sample_winner(i));
    return 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(UnreadableDatabase, LockedDatabaseIsReportedUntilARead) {
  const TemporaryDirectory directory;
  const CapturedLog quiet;
  TuningStore::open(directory.path())->record(sample_trials(1, 2), sample_winner(1));
  std::optional<RawDatabase> other(directory.file("tuning.db"));
  ASSERT_TRUE(other->run("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE"));
  const auto store = TuningStore::open(directory.path(), {.busy_wait = milliseconds(20)});
  EXPECT_TRUE(store->trials().empty());
  const Status status = store->readable();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, StatusCode::kIoError);
  EXPECT_THAT(status.error().message,
              HasSubstr("cannot read the tuning database " + directory.file("tuning.db") + ": "));
  EXPECT_THAT(status.error().message, HasSubstr("try again when other processes have released it"));

  other.reset();
  EXPECT_EQ(store->trials().size(), 2U);
  EXPECT_TRUE(store->readable());
}

TEST(UnreadableDatabase, DamagedDatabaseIsReadableAfterItsRepair) {
  const TemporaryDirectory directory;
  const CapturedLog quiet;
  write_file(directory.file("tuning.db"), "no database at all");
  const auto store = TuningStore::open(directory.path());
  EXPECT_TRUE(store->trials().empty());
  EXPECT_TRUE(store->readable());
}

TEST(UnreadableDatabase, MemoryOnlyStoreIsNotReadable) {
  const auto store = TuningStore::open("");
  ASSERT_FALSE(store->readable());
  EXPECT_EQ(store->readable().error().message,
            "there is no tuning database to read: no cache folder is set");
}

TEST(UnreadableDatabase, MissingDatabaseThatCannotBeCreatedIsReadable) {
  const TemporaryDirectory directory;
  const int status = run_in_child([&] {
    if (!mount_small_disk(directory.path(), "4m")) return kChildSkips;
    if (!remount_read_only(directory.path())) return kChildSkips;
    const CapturedLog quiet;
    const auto store = TuningStore::open(directory.path());
    CHILD_CHECK(store->trials().empty());
    CHILD_CHECK(!store->persistent());
    CHILD_CHECK(store->readable());
    return 0;
  });
  if (status == kChildSkips) GTEST_SKIP() << "mounting is not permitted here";
  EXPECT_EQ(status, 0);
}

TEST(UnreadableDatabase, DamagedReadOnlyDatabaseIsUnreadable) {
  const TemporaryDirectory directory;
  const int status = run_in_child([&] {
    if (!mount_small_disk(directory.path(), "4m")) return kChildSkips;
    write_file(directory.file("tuning.db"), "no database at all");
    if (!remount_read_only(directory.path())) return kChildSkips;
    const CapturedLog quiet;
    const Status readable = TuningStore::open(directory.path())->readable();
    CHILD_CHECK(!readable);
    CHILD_CHECK(readable.error().message.contains("file is not a database"));
    return 0;
  });
  if (status == kChildSkips) GTEST_SKIP() << "mounting is not permitted here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace dorajit::cache
