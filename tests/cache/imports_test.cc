// Imports that are undone.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "cache/trial_lines.h"
#include "cache/tuning_store.h"
#include "tests/cache/captured_log.h"
#include "tests/cache/random_trials.h"
#include "tests/cache/raw_database.h"
#include "tests/cache/sample_records.h"
#include "tests/cache/temporary_directory.h"

namespace dorajit::cache {
namespace {

// Trials as text and checksums of winners: everything that can be told apart.
using Content = std::pair<std::string, std::vector<std::int64_t>>;

class Imports : public testing::Test {
 protected:
  Content content() {
    std::vector<std::int64_t> winners;
    for (const Winner& winner : store_->winners()) winners.push_back(checksum(winner));
    return {to_lines(store_->trials()).lines, winners};
  }
  std::string import(const std::vector<Trial>& trials) {
    const auto counts = store_->import_trials(trials, "a.jsonl");
    EXPECT_TRUE(counts);
    return counts ? counts->id : std::string();
  }
  void expect_dense_ids() {
    RawDatabase raw(directory_.file("tuning.db"));
    EXPECT_EQ(raw.ask("SELECT ifnull(max(id), 0) - count(*) FROM trials"), "0");
    EXPECT_EQ(raw.ask("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(raw.ask("SELECT count(*) FROM import_trials WHERE trial NOT IN"
                      " (SELECT checksum FROM trials)"),
              "0");
  }

  TemporaryDirectory directory_;
  std::unique_ptr<TuningStore> store_ = TuningStore::open(directory_.path());
};

TEST_F(Imports, UndoingGivesWhatWasBefore) {
  RandomTrials random(41);
  for (int round = 0; round < 8; ++round) {
    store_->merge(random.runs(3, 2));
    const Content before = content();
    const auto trials = random.runs(4, 2);
    const std::string id = import(trials);
    ASSERT_EQ(id.size(), 12U);
    const Content after = content();
    EXPECT_NE(after, before) << round;
    const auto undone = store_->undo_import(id);
    ASSERT_TRUE(undone);
    EXPECT_GT(undone->removed, 0);
    EXPECT_EQ(undone->kept, 0);
    EXPECT_EQ(content(), before) << round;
    expect_dense_ids();
    EXPECT_NE(import(trials), id) << "ids are of imports, not of files";
    EXPECT_EQ(content(), after) << round;
  }
  EXPECT_EQ(store_->imports().size(), 8U);
}

TEST_F(Imports, TrialsThatWereThereBeforeStay) {
  store_->record(sample_trials(1, 3), sample_winner(1));
  const auto own = store_->trials();
  const Content before = content();
  EXPECT_EQ(import(own), "") << "there is nothing to undo";
  EXPECT_TRUE(store_->imports().empty());
  auto more = own;
  more.push_back(sample_trial(1, 9));
  const std::string id = import(more);
  EXPECT_EQ(store_->imports().at(0).trials, 1);
  EXPECT_EQ(store_->imports().at(0).source, "a.jsonl");
  EXPECT_EQ(store_->undo_import(id)->removed, 1);
  EXPECT_EQ(content().first, before.first);
}

TEST_F(Imports, KnownTrialsChangeNothing) {
  const auto trials = sample_trials(1, 2000);
  const std::string id = import(trials);
  const auto bytes = [&] { return std::filesystem::file_size(directory_.file("tuning.db")); };
  const auto before = bytes();
  RawDatabase watcher(directory_.file("tuning.db"));
  const std::string version = watcher.ask("PRAGMA data_version");
  for (int time = 0; time < 3; ++time) EXPECT_EQ(import(trials), "") << "nothing to undo";
  EXPECT_EQ(watcher.ask("PRAGMA data_version"), version) << "nothing was committed";
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(store_->imports().size(), 1U);
  EXPECT_EQ(store_->undo_import(id)->removed, 2000);
}

TEST_F(Imports, AnImportNotesWhatItAddedAlone) {
  auto trials = sample_trials(1, 2000);
  import(trials);
  RawDatabase raw(directory_.file("tuning.db"));
  EXPECT_EQ(raw.ask("SELECT count(*) FROM import_trials"), "2000");
  const auto before = std::filesystem::file_size(directory_.file("tuning.db"));
  trials.push_back(sample_trial(2, 1));
  import(trials);
  EXPECT_EQ(raw.ask("SELECT count(*) FROM import_trials"), "2001");
  EXPECT_EQ(store_->imports().at(1).trials, 1);
  EXPECT_LT(std::filesystem::file_size(directory_.file("tuning.db")), before + 20'000);
}

TEST_F(Imports, WhatSeveralBroughtGoesWithTheOneThatAddedIt) {
  RandomTrials random(42);
  const auto a = random.runs(3, 2);
  auto b = random.runs(3, 2);
  const auto only_b = b;
  b.insert(b.end(), a.begin(), a.end());
  const Content empty = content();
  const std::string first = import(a);
  const Content with_a = content();
  const std::string second = import(b);
  EXPECT_EQ(import(a), "") << "all of it is there";
  const auto undone = store_->undo_import(first);
  EXPECT_GT(undone->removed, 0);
  EXPECT_EQ(undone->kept, 0);
  expect_dense_ids();
  EXPECT_EQ(to_lines(store_->trials()).trials, std::ssize(only_b));
  EXPECT_GT(store_->undo_import(second)->removed, 0);
  EXPECT_EQ(content(), empty);
  EXPECT_NE(import(a), "");
  EXPECT_EQ(content(), with_a);
  store_->undo_import(store_->imports().at(0).id);
  EXPECT_TRUE(store_->imports().empty());
}

TEST_F(Imports, WhatAnEarlierVersionNotedWithSeveralGoesWithTheLast) {
  const auto trials = sample_trials(1, 3);
  const std::string first = import(trials);
  const std::string second = import({sample_trial(2, 1)});
  ASSERT_TRUE(RawDatabase(directory_.file("tuning.db"))
                  .run("INSERT INTO import_trials (trial, import)"
                       " SELECT trial, 2 FROM import_trials WHERE import = 1"));
  const auto undone = store_->undo_import(first);
  EXPECT_EQ(undone->removed, 0);
  EXPECT_EQ(undone->kept, 3);
  EXPECT_EQ(store_->undo_import(second)->removed, 4);
}

TEST_F(Imports, WhatWasTunedLaterStays) {
  const std::string id = import(sample_trials(1, 40));
  store_->record(sample_trials(2, 3), sample_winner(2));
  store_->undo_import(id);
  expect_dense_ids();
  EXPECT_EQ(store_->trials().size(), 3U);
  ASSERT_EQ(store_->winners().size(), 1U);
  EXPECT_EQ(store_->winners()[0].problem, sample_problem(2));
}

TEST_F(Imports, UnknownOnesAreToldFromWhatCannotBeWritten) {
  EXPECT_FALSE(store_->undo_import("000000000000"));
  EXPECT_TRUE(store_->persistent());
  const CapturedLog log;
  const auto nowhere = TuningStore::open("/dev/null/cache");
  EXPECT_FALSE(nowhere->import_trials(sample_trials(1, 3), "a"));
  EXPECT_FALSE(nowhere->persistent());
  EXPECT_TRUE(nowhere->trials().empty()) << "on disk or not at all";
  EXPECT_FALSE(nowhere->undo_import("000000000000"));
  EXPECT_TRUE(nowhere->imports().empty());
}

TEST_F(Imports, ADatabaseOfSchemaThreeIsMigrated) {
  store_->record(sample_trials(1, 3), sample_winner(1));
  const Content before = content();
  {
    RawDatabase raw(directory_.file("tuning.db"));
    ASSERT_TRUE(raw.run("DROP TABLE imports; DROP TABLE import_trials; PRAGMA user_version = 3"));
  }
  store_ = TuningStore::open(directory_.path());
  EXPECT_EQ(content(), before);
  store_->undo_import(import(sample_trials(2, 2)));
  EXPECT_EQ(content().first, before.first);
}

TEST_F(Imports, ProgressIsOfEveryTrial) {
  const auto trials = sample_trials(1, 5);
  std::vector<std::int64_t> seen;
  store_->import_trials(trials, "a", [&](std::int64_t done, std::int64_t in_all) {
    EXPECT_EQ(in_all, 5);
    seen.push_back(done);
  });
  EXPECT_EQ(seen, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace dorajit::cache
