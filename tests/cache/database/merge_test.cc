#include <gtest/gtest.h>

#include <algorithm>

#include "cache/database/tuning_store.h"
#include "cache/records/winner_choice.h"
#include "tests/cache/database/raw_database.h"
#include "tests/cache/records/random_trials.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

using Sums = std::vector<std::int64_t>;

template <class T>
Sums checksums(const std::vector<T>& records) {
  Sums sums;
  for (const T& record : records) sums.push_back(checksum(record));
  std::ranges::sort(sums);
  return sums;
}

// A store into which the given trials were merged in the given order.
class Merged {
 public:
  Merged() : store_(TuningStore::open(directory_.path())) {}

  Merged& operator+=(const std::vector<Trial>& trials) {
    store_->merge(trials);
    return *this;
  }
  TuningStore& store() { return *store_; }
  std::vector<Trial> trials() { return store_->trials(); }
  // Everything that distinguishes the content, independent of order.
  std::pair<Sums, Sums> content() {
    return {checksums(store_->trials()), checksums(store_->winners())};
  }

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<TuningStore> store_;
};

TEST(MergeProperties, MergeIsCommutativeAssociativeAndIdempotent) {
  RandomTrials random(11);
  for (int round = 0; round < 8; ++round) {
    const auto a = random.runs(4, 2);
    const auto b = random.runs(4, 2);
    const auto c = random.runs(4, 2);
    Merged expected;
    ((expected += a) += b) += c;
    ASSERT_FALSE(expected.store().winners().empty());

    Merged commuted;
    ((commuted += c) += b) += a;
    EXPECT_EQ(commuted.content(), expected.content()) << round;

    Merged inner;
    (inner += b) += c;
    Merged associated;
    (associated += a) += inner.trials();
    EXPECT_EQ(associated.content(), expected.content()) << round;

    const auto before = expected.content();
    expected += expected.trials();
    expected += b;
    EXPECT_EQ(expected.content(), before) << round;
  }
}

TEST(Merge, CountsAddedTrialsAndChangedWinners) {
  RandomTrials random(13);
  const auto trials = random.runs(5, 2);
  Merged merged;
  const MergeCounts first = merged.store().import_trials(trials).value();
  EXPECT_EQ(first.added, merged.store().trial_count());
  EXPECT_EQ(first.added + first.known, std::ssize(trials));
  EXPECT_EQ(first.winners, std::ssize(merged.store().winners()));
  const MergeCounts second = merged.store().import_trials(trials).value();
  EXPECT_EQ(second.added, 0);
  EXPECT_EQ(second.known, std::ssize(trials));
  EXPECT_EQ(second.winners, 0);
}

std::vector<Trial> tuned_run(const Winner& winner) {
  std::vector<Trial> trials;
  for (int i = 0; i < 4; ++i) {
    Trial trial = sample_trial(0, i);
    trial.problem = winner.problem;
    trial.created_unix_s = winner.created_unix_s;
    trial.host = "host";
    trial.default_config = winner.default_config;
    trial.median_ns = trial.config == winner.default_config ? winner.default_median_ns
                      : trial.config == winner.config       ? winner.median_ns
                                                            : winner.default_median_ns + i;
    trials.push_back(trial);
  }
  return trials;
}

TEST(Rebuild, EqualsTheWinnersThatTuningRecorded) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  for (int i = 1; i <= 3; ++i) store->record(tuned_run(sample_winner(i)), sample_winner(i));
  const auto before = checksums(store->winners());
  ASSERT_EQ(before.size(), 3U);
  EXPECT_EQ(store->rebuild_winners(), 3);
  EXPECT_EQ(checksums(store->winners()), before);
  RawDatabase(directory.file("tuning.db")).run("DELETE FROM winners");
  const auto other = TuningStore::open(directory.path());
  EXPECT_TRUE(other->winners().empty());
  EXPECT_EQ(other->rebuild_winners(), 3);
  EXPECT_EQ(checksums(other->winners()), before);
}

TEST(Rebuild, RemovesWinnersWithoutTrials) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  store->record({}, sample_winner(1));
  EXPECT_EQ(store->rebuild_winners(), 0);
  EXPECT_TRUE(store->winners().empty());
  EXPECT_FALSE(store->find_winner(kDevice, sample_problem(1)));
}

TEST(Rebuild, WithoutADatabaseReturnsNothing) {
  EXPECT_FALSE(TuningStore::open("")->rebuild_winners());
}

TEST(Merge, ImportedRefusalRemovesTheWinner) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  const Winner winner = sample_winner(1);
  store->record(tuned_run(winner), winner);
  Trial refusal = sample_trial(1, 0);
  refusal.config = winner.config;
  refusal.verdict = Verdict::kWrongBits;
  EXPECT_EQ(store->import_trials({&refusal, 1})->winners, 1);
  ASSERT_TRUE(store->find_winner(kDevice, sample_problem(1)));
  EXPECT_EQ(store->find_winner(kDevice, sample_problem(1))->config, winner.default_config);
}

TEST(Merge, ResultsStayInMemoryUntilTheDatabaseIsWritable) {
  const TemporaryDirectory directory;
  CapturedLog log;
  const std::string cache = directory.file("plain/cache");
  write_file(directory.file("plain"), "");
  const auto store = TuningStore::open(cache);
  const Winner winner = sample_winner(1);
  store->record({}, winner);
  store->merge(tuned_run(winner));
  EXPECT_EQ(store->trial_count(), 4);
  EXPECT_FALSE(store->find_winner(kDevice, sample_problem(1))) << "the trials decide";
  std::filesystem::remove(directory.file("plain"));
  store->record({}, sample_winner(2));
  const auto other = TuningStore::open(cache);
  EXPECT_EQ(other->trial_count(), 4);
  EXPECT_EQ(checksum(other->find_winner(kDevice, sample_problem(1)).value()), checksum(winner));
  EXPECT_TRUE(other->find_winner(kDevice, sample_problem(2)));
}

TEST(Import, KnownTrialsChangeNothing) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  const auto trials = sample_trials(1, 2000);
  ASSERT_TRUE(store->import_trials(trials));
  RawDatabase watcher(directory.file("tuning.db"));
  const std::string version = watcher.ask("PRAGMA data_version");
  for (int time = 0; time < 3; ++time) EXPECT_EQ(store->import_trials(trials)->known, 2000);
  EXPECT_EQ(watcher.ask("PRAGMA data_version"), version) << "nothing was committed";
}

TEST(Import, WithoutADatabaseImportsNothing) {
  const CapturedLog log;
  const auto nowhere = TuningStore::open("/dev/null/cache");
  EXPECT_FALSE(nowhere->import_trials(sample_trials(1, 3)));
  EXPECT_FALSE(nowhere->persistent());
  EXPECT_TRUE(nowhere->trials().empty());
}

TEST(Import, ProgressReachesTheNumberOfTrials) {
  const TemporaryDirectory directory;
  std::vector<std::int64_t> seen;
  TuningStore::open(directory.path())
      ->import_trials(sample_trials(1, 5), [&](std::int64_t done, std::int64_t in_all) {
        EXPECT_EQ(in_all, 5);
        seen.push_back(done);
      });
  EXPECT_EQ(seen, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace dorajit::cache
