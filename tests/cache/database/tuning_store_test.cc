#include "cache/database/tuning_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "cache/database/schema.h"
#include "runtime/base/hash.h"
#include "tests/cache/database/raw_database.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

TEST(TuningStore, SecondStoreReadsEveryFieldOfTheFirst) {
  const TemporaryDirectory directory;
  Trial trial = sample_trial(1, 2);
  trial.verdict = Verdict::kFailedToLaunch;
  trial.median_ns = std::numeric_limits<double>::quiet_NaN();
  trial.host = "quote\"\\caf\xc3\xa9";
  const Winner winner = sample_winner(1);
  TuningStore::open(directory.path())->record({&trial, 1}, winner);

  const auto store = TuningStore::open(directory.path());
  EXPECT_TRUE(store->persistent());
  EXPECT_EQ(store->reason_not_persistent(), "");
  EXPECT_EQ(store->location(), directory.file("tuning.db"));
  const auto found = store->find_winner(kDevice, sample_problem(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->problem, winner.problem);
  EXPECT_EQ(found->device, winner.device);
  EXPECT_EQ(found->environment, winner.environment);
  EXPECT_EQ(found->config, winner.config);
  EXPECT_EQ(found->default_config, winner.default_config);
  EXPECT_EQ(found->median_ns, winner.median_ns);
  EXPECT_EQ(found->default_median_ns, winner.default_median_ns);
  EXPECT_EQ(found->created_unix_s, winner.created_unix_s);

  const auto trials = store->trials(kDevice, sample_problem(1));
  ASSERT_EQ(trials.size(), 1U);
  EXPECT_EQ(trials[0].verdict, Verdict::kFailedToLaunch);
  EXPECT_TRUE(std::isnan(trials[0].median_ns));
  EXPECT_EQ(trials[0].host, trial.host);
  EXPECT_EQ(checksum(trials[0]), checksum(trial));
}

TEST(TuningStore, BadTrialsAreThoseOfConfigsThatMisbehaved) {
  const TemporaryDirectory directory;
  std::vector<Trial> trials;
  for (const Verdict verdict :
       {Verdict::kOk, Verdict::kWrongBits, Verdict::kFailedToCompile, Verdict::kFailedToLaunch,
        Verdict::kSpills, Verdict::kOutOfBounds, Verdict::kDidNotFinish}) {
    trials.push_back(sample_trial(1, static_cast<int>(trials.size())));
    trials.back().verdict = verdict;
  }
  TuningStore::open(directory.path())->merge(trials);
  std::erase_if(trials, [](const Trial& trial) { return !is_bad(trial.verdict); });
  const auto bad = TuningStore::open(directory.path())->find_history(kDevice, {}).bad_trials;
  ASSERT_EQ(bad.size(), trials.size());
  for (std::size_t i = 0; i < bad.size(); ++i) EXPECT_EQ(checksum(bad[i]), checksum(trials[i]));
  EXPECT_TRUE(
      TuningStore::open(directory.path())->find_history("another device", {}).bad_trials.empty());
}

TEST(TuningStore, HistoryContainsTheWinnerAndTheBadTrialsOfTheDevice) {
  const TemporaryDirectory directory;
  Trial bad = sample_trial(1, 1);
  bad.verdict = Verdict::kWrongBits;
  TuningStore::open(directory.path())->record(std::vector{bad}, sample_winner(2));
  const auto store = TuningStore::open(directory.path());
  const auto history = store->find_history(kDevice, sample_problem(2));
  ASSERT_TRUE(history.winner);
  EXPECT_EQ(checksum(*history.winner), checksum(sample_winner(2)));
  EXPECT_EQ(history.bad_trials.size(), 1U);
  EXPECT_FALSE(store->find_history(kDevice, sample_problem(3)).winner);
  EXPECT_FALSE(TuningStore::open("")->find_history(kDevice, sample_problem(2)).winner);
}

TEST(TuningStore, UnknownProblemHasNoResults) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  EXPECT_FALSE(store->find_winner(kDevice, "compose/none"));
  EXPECT_TRUE(store->winners().empty());
  EXPECT_TRUE(store->trials(kDevice, "compose/none").empty());
  EXPECT_EQ(store->trial_count(), 0);
}

TEST(TuningStore, LaterWinnerReplacesTheEarlierOneAndTrialsAccumulate) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  store->record(sample_trials(1, 3), sample_winner(1));
  Winner better = sample_winner(1);
  better.config = sample_config(5);
  const Trial trial = sample_trial(1, 9);
  store->record({&trial, 1}, better);
  EXPECT_EQ(store->find_winner(kDevice, sample_problem(1))->config, sample_config(5));
  EXPECT_EQ(store->winners().size(), 1U);
  EXPECT_EQ(store->trial_count(), 4);
  EXPECT_EQ(store->trials(kDevice, sample_problem(1)).back().host, trial.host);
}

TEST(TuningStore, EqualTrialsAreStoredOnce) {
  const TemporaryDirectory directory;
  for (const std::string& where : {directory.path(), std::string()}) {
    const auto store = TuningStore::open(where);
    for (int i = 0; i < 3; ++i) store->record(sample_trials(1, 4), sample_winner(1));
    EXPECT_EQ(store->trial_count(), 4);
    EXPECT_EQ(store->trials(kDevice, sample_problem(1)).size(), 4U);
  }
}

TEST(TuningStore, DevicesHaveSeparateResults) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  store->record({}, sample_winner(1));
  EXPECT_FALSE(store->find_winner("NVIDIA H100", sample_problem(1)));
}

TEST(TuningStore, MemoryOnlyStoreSupportsAllOperations) {
  CapturedLog log;
  const auto store = TuningStore::open("");
  EXPECT_EQ(store->location(), "memory");
  EXPECT_FALSE(store->persistent());
  EXPECT_EQ(store->reason_not_persistent(), "no cache folder is set");
  store->record(sample_trials(2, 2), sample_winner(2));
  store->record(sample_trials(1, 3), sample_winner(1));
  EXPECT_TRUE(store->find_winner(kDevice, sample_problem(1)));
  EXPECT_EQ(store->trial_count(), 5);
  EXPECT_EQ(store->trials(kDevice, sample_problem(1)).size(), 3U);
  ASSERT_EQ(store->winners().size(), 2U);
  EXPECT_EQ(store->winners()[0].problem, sample_problem(1));
  EXPECT_EQ(log.size(), 0);
}

TEST(TuningStore, UnusableFolderIsLoggedOnceAndMemoryIsUsed) {
  const TemporaryDirectory directory;
  write_file(directory.file("plain"), "");
  CapturedLog log;
  const auto store = TuningStore::open(directory.file("plain/cache"));
  for (int i = 0; i < 3; ++i) {
    store->record(sample_trials(i, 2), sample_winner(i));
    EXPECT_TRUE(store->find_winner(kDevice, sample_problem(i)));
  }
  EXPECT_EQ(store->location(), "memory");
  EXPECT_FALSE(store->persistent());
  EXPECT_NE(store->reason_not_persistent().find("Not a directory"), std::string::npos);
  EXPECT_EQ(log.size(), 1);
  EXPECT_EQ(log.count("set DORAJIT_CACHE_DIR to a writable folder"), 1);
}

TEST(TuningStore, RemovedFolderIsCreatedAgain) {
  const TemporaryDirectory directory;
  const std::string cache = directory.file("cache");
  const auto store = TuningStore::open(cache);
  store->record({}, sample_winner(1));
  std::filesystem::remove_all(cache);
  store->record({}, sample_winner(2));
  EXPECT_TRUE(TuningStore::open(cache)->find_winner(kDevice, sample_problem(2)));
}

TEST(TuningStore, BackwardClockJumpDoesNotAffectResults) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  Winner winner = sample_winner(1);
  winner.created_unix_s = 2'000'000'000;
  store->record(sample_trials(1, 2), winner);
  winner.created_unix_s = 1'000;
  winner.median_ns = 7;
  store->record({}, winner);
  EXPECT_EQ(store->find_winner(kDevice, sample_problem(1))->median_ns, 7);
  EXPECT_EQ(TuningStore::open(directory.path())->find_winner(kDevice, sample_problem(1))->median_ns,
            7);
}

TEST(TuningStore, AlteredWinnerIsIgnored) {
  const TemporaryDirectory directory;
  TuningStore::open(directory.path())->record({}, sample_winner(1));
  TuningStore::open(directory.path())->record({}, sample_winner(2));
  {
    RawDatabase raw(directory.file("tuning.db"));
    raw.run("UPDATE winners SET config = 'fast' WHERE problem = '" + sample_problem(1) + "'");
    raw.run("UPDATE winners SET median_ns = 1.0 WHERE problem = '" + sample_problem(2) + "'");
  }
  const auto store = TuningStore::open(directory.path());
  EXPECT_FALSE(store->find_winner(kDevice, sample_problem(1)));
  EXPECT_FALSE(store->find_winner(kDevice, sample_problem(2)));
  EXPECT_TRUE(store->winners().empty());
}

TEST(TuningStore, AlteredTrialIsIgnored) {
  const TemporaryDirectory directory;
  TuningStore::open(directory.path())->record(sample_trials(1, 5), sample_winner(1));
  RawDatabase(directory.file("tuning.db")).run("UPDATE trials SET median_ns = 1.0 WHERE id = 3");
  const auto store = TuningStore::open(directory.path());
  EXPECT_EQ(store->trial_count(), 4);
  EXPECT_EQ(store->trials(kDevice, sample_problem(1)).size(), 4U);
}

TEST(TuningStore, PathsWithOddCharactersWork) {
  const TemporaryDirectory directory;
  const std::string cache = directory.file("a b%20?mode=ro#'\xc3\xa9");
  TuningStore::open(cache)->record({}, sample_winner(1));
  EXPECT_TRUE(TuningStore::open(cache)->find_winner(kDevice, sample_problem(1)));
}

TEST(TuningStore, ThreadsShareOneStore) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        store->record(sample_trials(10 * t + i, 2), sample_winner(10 * t + i));
        EXPECT_TRUE(store->find_winner(kDevice, sample_problem(10 * t + i)));
        EXPECT_GE(store->trial_count(), 2);
        EXPECT_FALSE(store->winners().empty());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->winners().size(), 40U);
  EXPECT_EQ(store->trial_count(), 80);
  EXPECT_TRUE(store->persistent());
}

constexpr int kTrialsEach = 4;

void fill(TuningStore& store) {
  for (const int problem : {1, 2}) {
    store.record(sample_trials(problem, kTrialsEach), sample_winner(problem));
  }
}

TEST(TuningStoreForget, ProblemIsForgottenInTheStoreAndOnDisk) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  fill(*store);
  const auto counts = store->forget(kDevice, sample_problem(1));
  ASSERT_TRUE(counts);
  EXPECT_EQ(counts->trials, kTrialsEach);
  EXPECT_EQ(counts->winners, 1);
  const auto reopened = TuningStore::open(directory.path());
  for (TuningStore* one : {store.get(), reopened.get()}) {
    EXPECT_FALSE(one->find_winner(kDevice, sample_problem(1)));
    EXPECT_TRUE(one->trials(kDevice, sample_problem(1)).empty());
    EXPECT_TRUE(one->find_winner(kDevice, sample_problem(2)));
    EXPECT_EQ(one->trials().size(), std::size_t{kTrialsEach});
    EXPECT_EQ(one->winners().size(), 1U);
  }
  EXPECT_EQ(store->forget(kDevice, sample_problem(1))->trials, 0);
  EXPECT_EQ(store->forget("another device", sample_problem(2))->trials, 0);
}

TEST(TuningStoreForget, EmptyTextForgetsEverything) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  fill(*store);
  EXPECT_EQ(store->forget("", "")->trials, 2 * kTrialsEach);
  EXPECT_EQ(TuningStore::open(directory.path())->trial_count(), 0);
  fill(*store);
  EXPECT_EQ(TuningStore::open(directory.path())->trial_count(), 2 * kTrialsEach)
      << "it is recorded again";
}

TEST(TuningStoreForget, WithoutADatabaseNothingIsForgotten) {
  const auto store = TuningStore::open("");
  fill(*store);
  EXPECT_FALSE(store->forget(kDevice, sample_problem(1)));
  EXPECT_TRUE(store->find_winner(kDevice, sample_problem(1)));
}

TEST(Schema, PublishedFileIsComplete) {
  const TemporaryDirectory directory;
  TuningStore::open(directory.path());
  // The header alone contains this, so the first users have nothing to change.
  EXPECT_EQ(count_names(directory.path(), "tuning.db-"), 0);
  EXPECT_EQ(count_names(directory.path(), ".tmp."), 0);
  const std::string header = read_file(directory.file("tuning.db")).substr(0, 100);
  EXPECT_EQ(header.substr(18, 2), std::string("\2\2"));  // WAL
  EXPECT_EQ(header.substr(60, 4), std::string("\0\0\0\1", 4));
  EXPECT_EQ(header.substr(68, 4), "DORJ");

  RawDatabase raw(directory.file("tuning.db"));
  EXPECT_EQ(raw.ask("PRAGMA journal_mode"), "wal");
  EXPECT_EQ(raw.ask("SELECT count(*) FROM pragma_table_list WHERE name IN ('trials','winners')"
                    " AND strict = 1"),
            "2");
}

// Databases store the text of their tables, and a text that differs from this program's counts as
// damage.
TEST(Schema, TextIsThatOfVersion1) {
  const TemporaryDirectory directory;
  TuningStore::open(directory.path());
  RawDatabase raw(directory.file("tuning.db"));
  EXPECT_EQ(kSchemaVersion, 1);
  EXPECT_EQ(hash_hex(raw.ask("SELECT group_concat(sql, ';') FROM sqlite_schema")),
            "93a1f6ca59b3dfbd94df8b8513335828")
      << "a change of the schema, including blanks, requires a new version";
}

}  // namespace
}  // namespace dorajit::cache
