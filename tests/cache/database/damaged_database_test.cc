#include <gtest/gtest.h>

#include <random>

#include "cache/database/tuning_store.h"
#include "tests/cache/database/raw_database.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

constexpr int kProblems = 20;
constexpr int kTrialsEach = 20;
constexpr std::size_t kPage = 4096;

class DamagedDatabase : public testing::Test {
 protected:
  void fill() {
    const auto store = TuningStore::open(cache());
    for (int i = 0; i < kProblems; ++i) {
      store->record(sample_trials(i, kTrialsEach), sample_winner(i));
    }
  }

  // Expects that the database works after opening and that the old file was renamed, unaltered.
  void expect_set_aside(const std::string& damaged_bytes) {
    const auto store = TuningStore::open(cache());
    EXPECT_TRUE(store->persistent()) << store->reason_not_persistent();
    store->record(sample_trials(500, 1), sample_winner(500));
    EXPECT_TRUE(TuningStore::open(cache())->find_winner(kDevice, sample_problem(500)));
    EXPECT_EQ(count_names(cache(), "tuning.db.corrupt-"), 1);
    for (const auto& entry : std::filesystem::directory_iterator(cache())) {
      if (entry.path().string().find("corrupt-") != std::string::npos) {
        EXPECT_TRUE(read_file(entry.path()) == damaged_bytes);
      }
    }
    EXPECT_EQ(log_.count("was damaged"), 1);
    EXPECT_EQ(log_.size(), 1);
  }

  // Offset of the page with a trial's row.
  std::size_t page_of(const std::string& bytes, int problem, int trial) {
    const std::size_t offset = bytes.find(sample_trial(problem, trial).host);
    EXPECT_NE(offset, std::string::npos);
    return offset / kPage * kPage;
  }

  [[nodiscard]] const std::string& cache() const { return directory_.path(); }
  [[nodiscard]] std::string db() const { return directory_.file("tuning.db"); }

  TemporaryDirectory directory_;
  CapturedLog log_;
};

TEST_F(DamagedDatabase, FileOfNoiseIsReplaced) {
  std::string noise(20'000, '\0');
  std::minstd_rand random(1);
  for (char& c : noise) c = static_cast<char>(random());
  write_file(db(), noise);
  expect_set_aside(noise);
}

TEST_F(DamagedDatabase, EmptyFileIsReplaced) {
  write_file(db(), "");
  expect_set_aside("");
}

TEST_F(DamagedDatabase, DatabaseOfAnotherProgramIsReplaced) {
  RawDatabase(db()).run("PRAGMA application_id = 7; CREATE TABLE trials (id INTEGER)");
  expect_set_aside(read_file(db()));
}

TEST_F(DamagedDatabase, DatabaseWithoutMarksIsReplaced) {
  RawDatabase(db()).run("CREATE TABLE t (id INTEGER)");
  expect_set_aside(read_file(db()));
}

TEST_F(DamagedDatabase, TablesOfAnotherLayoutAreReplaced) {
  RawDatabase(db()).run(
      "PRAGMA application_id = 1146049098; PRAGMA user_version = 1;"
      "CREATE TABLE trials (id INTEGER PRIMARY KEY, device TEXT NOT NULL) STRICT;"
      "CREATE TABLE winners (device TEXT NOT NULL, PRIMARY KEY (device)) STRICT, WITHOUT ROWID");
  expect_set_aside(read_file(db()));
}

TEST_F(DamagedDatabase, EveryTruncationIsRepaired) {
  fill();
  const std::string whole = read_file(db());
  int set_aside = 0;
  for (std::size_t size : {std::size_t{1}, std::size_t{50}, std::size_t{100}, kPage, kPage + 7,
                           2 * kPage, whole.size() / 2, whole.size() - kPage}) {
    write_file(db(), whole.substr(0, size));
    const auto store = TuningStore::open(cache());
    EXPECT_TRUE(store->persistent()) << size << ": " << store->reason_not_persistent();
    store->record(sample_trials(500, 1), sample_winner(500));
    EXPECT_TRUE(store->find_winner(kDevice, sample_problem(500))) << size;
    EXPECT_EQ(count_names(cache(), "tuning.db.corrupt-"), ++set_aside) << size;
  }
}

TEST_F(DamagedDatabase, OneDamagedPageLosesOnlyItsRows) {
  fill();
  std::string bytes = read_file(db());
  ASSERT_GT(bytes.size(), 20 * kPage);
  const std::size_t page = page_of(bytes, 10, 10);
  // Alters a row of another page so that only its checksum shows it.
  const std::string altered = sample_trial(1, 1).host;
  ASSERT_NE(page_of(bytes, 1, 1), page);
  bytes[bytes.find(altered)] = 'H';
  bytes.replace(page, kPage, std::string(kPage, '\x5a'));
  write_file(db(), bytes);

  const auto store = TuningStore::open(cache());
  EXPECT_TRUE(store->persistent());
  EXPECT_GE(store->trial_count(), kProblems * kTrialsEach - 40);
  EXPECT_LT(store->trial_count(), kProblems * kTrialsEach - 1);
  EXPECT_EQ(store->trials(kDevice, sample_problem(1)).size(), std::size_t{kTrialsEach - 1});
  EXPECT_EQ(store->trials(kDevice, sample_problem(19)).size(), std::size_t{kTrialsEach});
  EXPECT_EQ(store->winners().size(), std::size_t{kProblems});
  expect_set_aside(bytes);
}

TEST_F(DamagedDatabase, RowsBehindGapsOfForgottenOnesAreSalvaged) {
  fill();
  const auto store = TuningStore::open(cache());
  // Each round takes ids that no earlier one had, in pages that the file has already.
  for (int round = 0; round < 4; ++round) {
    for (int i = 1; i < kProblems; ++i) {
      ASSERT_TRUE(store->forget(kDevice, sample_problem(i + round * kProblems)));
      store->record(sample_trials(i + (round + 1) * kProblems, kTrialsEach),
                    sample_winner(i + (round + 1) * kProblems));
    }
  }
  const std::int64_t before = store->trial_count();
  std::string bytes = read_file(db());
  bytes.replace(page_of(bytes, 0, 10), kPage, std::string(kPage, '\x5a'));
  write_file(db(), bytes);
  EXPECT_GE(TuningStore::open(cache())->trial_count(), before - 40);
}

TEST_F(DamagedDatabase, InvalidChecksumDoesNotReplaceTheFile) {
  fill();
  std::string bytes = read_file(db());
  bytes[bytes.find(sample_trial(3, 3).host)] = 'H';
  write_file(db(), bytes);
  const auto store = TuningStore::open(cache());
  EXPECT_EQ(store->trial_count(), kProblems * kTrialsEach - 1);
  EXPECT_EQ(count_names(cache(), "corrupt"), 0);
  EXPECT_EQ(log_.size(), 0);
}

TEST_F(DamagedDatabase, DamageDuringUseIsRepairedAtTheNextUse) {
  fill();
  const auto store = TuningStore::open(cache());
  std::string bytes = read_file(db());
  bytes.replace(page_of(bytes, 10, 10), kPage, std::string(kPage, '\x5a'));
  write_file(db(), bytes);
  EXPECT_GE(store->trial_count(), kProblems * kTrialsEach - 40);
  EXPECT_EQ(count_names(cache(), "tuning.db.corrupt-"), 1);
  store->record(sample_trials(500, 1), sample_winner(500));
  EXPECT_TRUE(store->persistent());
  EXPECT_EQ(TuningStore::open(cache())->winners().size(), std::size_t{kProblems + 1});
}

TEST_F(DamagedDatabase, WalOfADamagedFileIsRenamedWithIt) {
  write_file(db(), std::string(kPage, 'x'));
  write_file(db() + "-wal", "left over");
  const auto store = TuningStore::open(cache());
  store->record({}, sample_winner(1));
  EXPECT_TRUE(store->persistent());
  EXPECT_TRUE(TuningStore::open(cache())->find_winner(kDevice, sample_problem(1)));
  EXPECT_EQ(count_names(cache(), "tuning.db.corrupt-"), count_names(cache(), "-wal") + 1);
}

TEST_F(DamagedDatabase, NewDatabaseBesideALeftoverWalIsUsedInTheEnd) {
  const TemporaryDirectory other;
  {
    RawDatabase raw(other.file("x.db"));
    raw.run("PRAGMA journal_mode = WAL; CREATE TABLE foreign_rows (n INTEGER)");
    write_file(db() + "-wal", read_file(other.file("x.db-wal")));
  }
  TuningStore::open(cache())->record({}, sample_winner(1));
  const auto store = TuningStore::open(cache());
  EXPECT_TRUE(store->find_winner(kDevice, sample_problem(1)));
  EXPECT_LE(log_.count("was damaged"), 1);
  EXPECT_EQ(log_.count("was damaged"), log_.size());
}

TEST_F(DamagedDatabase, FileOfANewerSchemaIsNotModified) {
  fill();
  // Its writer was killed, so the version is only in the WAL, and a checkpoint at closing would
  // move it.
  ASSERT_EQ(run_in_child([&] {
              auto* raw = new RawDatabase(db());
              CHILD_CHECK(raw->run("PRAGMA user_version = 99"));
              return 0;
            }),
            0);
  const std::string before = read_file(db());
  const auto store = TuningStore::open(cache());
  EXPECT_EQ(store->location(), "memory");
  EXPECT_FALSE(store->persistent());
  store->record(sample_trials(500, 2), sample_winner(500));
  EXPECT_TRUE(store->find_winner(kDevice, sample_problem(500)));
  EXPECT_EQ(store->trial_count(), 2);
  EXPECT_FALSE(store->find_winner(kDevice, sample_problem(1)));
  EXPECT_TRUE(read_file(db()) == before);
  EXPECT_EQ(RawDatabase(db()).ask("PRAGMA user_version"), "99");
  EXPECT_EQ(count_names(cache(), "corrupt"), 0);
  EXPECT_EQ(log_.size(), 1);
  EXPECT_EQ(log_.count(db() + " has schema version 99, written by a newer dorajit"), 1);
}

TEST_F(DamagedDatabase, FolderInPlaceOfTheDatabaseFailsNoCall) {
  std::filesystem::create_directory(db());
  const auto store = TuningStore::open(cache());
  EXPECT_FALSE(store->persistent());
  store->record({}, sample_winner(1));
  EXPECT_TRUE(store->find_winner(kDevice, sample_problem(1)));
  EXPECT_EQ(log_.size(), 1);
}

TEST_F(DamagedDatabase, RandomBitFlipsFailNoCall) {
  fill();
  const std::string whole = read_file(db());
  std::minstd_rand random(7);
  for (int round = 0; round < 60; ++round) {
    std::string bytes = whole;
    for (int flip = 0; flip <= round % 8; ++flip) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    }
    write_file(db(), bytes);
    const auto store = TuningStore::open(cache());
    store->record(sample_trials(500, 1), sample_winner(500));
    EXPECT_TRUE(store->find_winner(kDevice, sample_problem(500))) << round;
    for (int i = 0; i < kProblems; ++i) {
      if (const auto found = store->find_winner(kDevice, sample_problem(i))) {
        EXPECT_EQ(checksum(*found), checksum(sample_winner(i)));
      }
    }
  }
}

}  // namespace
}  // namespace dorajit::cache
