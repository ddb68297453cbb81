#include <gtest/gtest.h>
#include <unistd.h>

#include <format>

#include "cache/trial_files.h"
#include "cache/tuning_run.h"
#include "cache/tuning_store.h"
#include "cache/winner_choice.h"
#include "kernel_templates/config_text.h"
#include "tests/cache/captured_log.h"
#include "tests/cache/raw_database.h"
#include "tests/cache/sample_records.h"
#include "tests/cache/temporary_directory.h"

namespace dorajit::cache {
namespace {

// As the first release made it.
constexpr const char* kSchema1 = R"sql(
PRAGMA application_id = 1146049098;
PRAGMA user_version = 1;
CREATE TABLE trials (id INTEGER PRIMARY KEY, device TEXT NOT NULL, problem TEXT NOT NULL,
  driver TEXT NOT NULL, policy TEXT NOT NULL, space TEXT NOT NULL, tuner TEXT NOT NULL,
  templates TEXT NOT NULL, config TEXT NOT NULL, verdict TEXT NOT NULL, median_ns REAL,
  mad_ns REAL, samples INTEGER NOT NULL, created_unix_s INTEGER NOT NULL, host TEXT NOT NULL,
  checksum INTEGER NOT NULL UNIQUE) STRICT;
CREATE INDEX trials_by_problem ON trials (device, problem);
CREATE TABLE winners (device TEXT NOT NULL, problem TEXT NOT NULL, driver TEXT NOT NULL,
  policy TEXT NOT NULL, space TEXT NOT NULL, tuner TEXT NOT NULL, templates TEXT NOT NULL,
  config TEXT NOT NULL, default_config TEXT NOT NULL, median_ns REAL, default_median_ns REAL,
  created_unix_s INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (device, problem))
  STRICT, WITHOUT ROWID;
PRAGMA journal_mode = WAL;
)sql";

std::string columns(const Environment& e) {
  return std::format("'{}','{}','{}','{}','{}'", e.driver, e.policy, e.space, e.tuner, e.templates);
}

void insert(RawDatabase& raw, const Trial& t) {
  ASSERT_TRUE(raw.run(
      std::format("INSERT INTO trials VALUES (NULL,'{}','{}',{},'{}','{}',{},{},{},{},'{}',{})",
                  t.device, t.problem, columns(t.environment), to_text(t.config), name(t.verdict),
                  t.median_ns, t.mad_ns, t.samples, t.created_unix_s, t.host, checksum(t))));
}

void insert(RawDatabase& raw, const Winner& w) {
  ASSERT_TRUE(raw.run(std::format("INSERT INTO winners VALUES ('{}','{}',{},'{}','{}',{},{},{},{})",
                                  w.device, w.problem, columns(w.environment), to_text(w.config),
                                  to_text(w.default_config), w.median_ns, w.default_median_ns,
                                  w.created_unix_s, checksum(w))));
}

class SchemaOne : public testing::Test {
 protected:
  // A run with its winner, and an older run that no winner tells of.
  void fill() {
    RawDatabase raw(db());
    ASSERT_TRUE(raw.run(kSchema1));
    for (int i = 0; i < kTrials; ++i) {
      Trial trial = sample_trial(1, i);
      trial.created_unix_s = winner_.created_unix_s;
      trial.median_ns = i == 0 ? winner_.default_median_ns : winner_.median_ns + 100 * (i - 1);
      trial.host = "host";
      insert(raw, trial);
      trial.created_unix_s -= 100;
      insert(raw, trial);
    }
    insert(raw, winner_);
  }

  [[nodiscard]] std::string db() const { return directory_.file("tuning.db"); }

  static constexpr int kTrials = 4;
  const Winner winner_ = sample_winner(1);
  TemporaryDirectory directory_;
  CapturedLog log_;
};

TEST_F(SchemaOne, IsMigratedAndTellsTheDefaults) {
  fill();
  const auto store = TuningStore::open(directory_.path());
  EXPECT_TRUE(store->persistent()) << store->reason_not_persistent();
  ASSERT_TRUE(store->find_winner(kDevice, sample_problem(1)));
  EXPECT_EQ(checksum(*store->find_winner(kDevice, sample_problem(1))), checksum(winner_));
  const auto trials = store->trials(kDevice, sample_problem(1));
  ASSERT_EQ(trials.size(), 2U * kTrials);
  for (const Trial& trial : trials) {
    EXPECT_EQ(trial.default_config.has_value(), are_of_one_run(trial, winner_));
    EXPECT_EQ(trial.default_config.value_or(winner_.default_config), winner_.default_config);
  }
  EXPECT_EQ(RawDatabase(db()).ask("PRAGMA user_version"), "4");
  EXPECT_EQ(log_.size(), 0);
}

TEST_F(SchemaOne, ServesWhereItCannotBeMigrated) {
  if (::getuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fill();
  std::filesystem::permissions(
      directory_.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const auto store = TuningStore::open(directory_.path());
  EXPECT_TRUE(store->find_winner(kDevice, sample_problem(1)));
  EXPECT_EQ(store->trials(kDevice, sample_problem(1)).size(), 2U * kTrials);
}

TEST_F(SchemaOne, ServesAsAnOverlay) {
  fill();
  const auto store = TuningStore::open("", {.overlays = {db()}});
  EXPECT_TRUE(store->find_overlay_winner(kDevice, sample_problem(1)));
  EXPECT_EQ(RawDatabase(db()).ask("PRAGMA user_version"), "1");
}

TEST_F(SchemaOne, IsReadAsAFileWithItsDefaults) {
  fill();
  const auto file = read_trial_file(db());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->is_whole());
  EXPECT_EQ(file->trials.size(), 2U * kTrials);
  const auto winners = choose_winners(file->trials);
  ASSERT_EQ(winners.size(), 1U);
  EXPECT_EQ(checksum(winners[0]), checksum(winner_));
  EXPECT_EQ(RawDatabase(db()).ask("PRAGMA user_version"), "1");
}

TEST_F(SchemaOne, RebuildEqualsWhatWasThere) {
  fill();
  const auto store = TuningStore::open(directory_.path());
  EXPECT_EQ(store->rebuild_winners(), 1);
  ASSERT_EQ(store->winners().size(), 1U);
  EXPECT_EQ(checksum(store->winners()[0]), checksum(winner_));
}

TEST_F(SchemaOne, IsSalvagedWithItsDefaults) {
  fill();
  std::size_t page = 0;
  {
    RawDatabase raw(db());
    raw.run("PRAGMA wal_checkpoint(TRUNCATE)");
    page = std::stoul(raw.ask("SELECT rootpage FROM sqlite_schema WHERE name='trials_by_problem'"));
  }
  std::string bytes = read_file(db());
  constexpr std::size_t kPage = 4096;
  write_file(db(), bytes.replace((page - 1) * kPage, kPage, std::string(kPage, 'x')));

  const auto store = TuningStore::open(directory_.path());
  EXPECT_EQ(log_.count("was damaged"), 1);
  EXPECT_EQ(store->trial_count(), 2 * kTrials);
  int named = 0;
  for (const Trial& trial : store->trials(kDevice, sample_problem(1))) {
    named += static_cast<int>(trial.default_config.has_value());
  }
  EXPECT_EQ(named, kTrials);
}

}  // namespace
}  // namespace dorajit::cache
