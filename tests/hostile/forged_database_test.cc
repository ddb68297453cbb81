// Files that look like tuning databases and are meant to do harm.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <format>
#include <string>

#include "cache/database/overlay_databases.h"
#include "cache/database/sqlite_connection.h"
#include "cache/database/trial_files.h"
#include "cache/database/tuning_store.h"
#include "tests/cache/database/raw_database.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

constexpr const char* kEndless =
    "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) ";

struct Forgery {
  const char* name;
  std::string sql;
  std::size_t salvaged;  // trials, of five
};

std::vector<Forgery> forgeries() {
  const std::string environment =
      "'d' device, 'p' problem, '' driver, '' policy, '' space, '' tuner, '' templates, 'c' config,"
      " 'ok' verdict, 1.0 median_ns, 1.0 mad_ns, 1 samples, 1 created_unix_s, 'h' host,"
      " 1 checksum, NULL default_config, NULL log_ratio, NULL log_ratio_error";
  return {
      {"endless view of trials",
       std::format("DROP TABLE trials; CREATE VIEW trials AS {} SELECT id, {} FROM n", kEndless,
                   environment),
       0},
      {"endless view of winners",
       std::format("DROP TABLE winners; CREATE VIEW winners AS {} SELECT id device FROM n",
                   kEndless),
       5},
      {"trigger", "CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM winners; END", 5},
      {"virtual table",
       "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES"
       " ('table', 'extra', 'extra', 0, 'CREATE VIRTUAL TABLE extra USING fts5(x)')",
       5},
      {"computed column", "ALTER TABLE trials ADD COLUMN x TEXT AS (hex(zeroblob(100000000)))", 0},
      {"computed index", "CREATE INDEX slow ON trials (length(hex(zeroblob(100000000))))", 5},
      {"a row beyond all others",
       "UPDATE trials SET id = 4611686018427387904 WHERE id = 5; CREATE TABLE notes (x)", 4},
      {"table of another program", "CREATE TABLE notes (x TEXT)", 5},
      {"a table is missing", "DROP TABLE winners", 5},
      {"a table without its constraints",
       "ALTER TABLE winners RENAME TO old; CREATE TABLE winners AS SELECT * FROM old; DROP TABLE "
       "old",
       5},
  };
}

class ForgedDatabase : public testing::Test {
 protected:
  // A valid database with the forgery.
  std::string make(const Forgery& forgery) {
    const std::string folder = directory_.file(std::to_string(++count_));
    std::filesystem::create_directory(folder);
    TuningStore::open(folder)->record(sample_trials(1, 5), sample_winner(1));
    RawDatabase raw(folder + "/tuning.db");
    EXPECT_TRUE(raw.run(forgery.sql)) << forgery.name;
    EXPECT_TRUE(raw.run("PRAGMA wal_checkpoint(TRUNCATE)"));
    return folder;
  }

  TemporaryDirectory directory_;
  int count_ = 0;
};

// The time limit of the test would end an endless query.
TEST_F(ForgedDatabase, IsReportedAsDamaged) {
  for (const Forgery& forgery : forgeries()) {
    const auto file = read_trial_file(make(forgery) + "/tuning.db");
    ASSERT_TRUE(file) << forgery.name << ": " << file.error().message;
    EXPECT_FALSE(file->damage.empty()) << forgery.name;
    EXPECT_TRUE(file->trials.empty()) << forgery.name;
  }
}

TEST_F(ForgedDatabase, IsSkippedAsAnOverlay) {
  for (const Forgery& forgery : forgeries()) {
    const std::string path = make(forgery) + "/tuning.db";
    EXPECT_FALSE(count_overlay_winners(path)) << forgery.name;
    CapturedLog log;
    OverlayDatabases overlays({&path, 1}, Trust{});
    EXPECT_FALSE(overlays.find_winner(kDevice, sample_problem(1))) << forgery.name;
    EXPECT_EQ(log.count("are not used"), 1) << forgery.name;
  }
}

TEST_F(ForgedDatabase, IsReplacedInTheCacheFolder) {
  for (const Forgery& forgery : forgeries()) {
    const std::string folder = make(forgery);
    CapturedLog log;
    const auto store = TuningStore::open(folder);
    EXPECT_EQ(store->trials().size(), forgery.salvaged) << forgery.name;
    EXPECT_TRUE(store->persistent()) << forgery.name;
    EXPECT_EQ(log.count("was damaged (i"), 1) << forgery.name;
    store->record(sample_trials(2, 3), sample_winner(2));
    EXPECT_TRUE(store->find_winner(kDevice, sample_problem(2))) << forgery.name;
    EXPECT_TRUE(read_trial_file(folder + "/tuning.db")->is_complete()) << forgery.name;
  }
}

// The second safeguard against an endless query of a foreign file.
TEST_F(ForgedDatabase, QueriesOfAForeignFileEnd) {
  const std::string path = make({.name = "good", .sql = "SELECT 1", .salvaged = 5}) + "/tuning.db";
  auto connection = Connection::open(path, Connection::Mode::kReadOnly);
  ASSERT_TRUE(connection);
  connection->limit_steps_by_size_of(path);
  const auto count = connection->query_integer(std::string(kEndless) + "SELECT count(*) FROM n");
  ASSERT_FALSE(count);
  EXPECT_TRUE(is_damage(count.error())) << count.error().message;
}

TEST_F(ForgedDatabase, ControlCharactersInNamesAreEscaped) {
  const auto file = read_trial_file(
      make({.name = "name", .sql = "CREATE TABLE \"a\x1b[2J\nb\" (x)", .salvaged = 5}) +
      "/tuning.db");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->damage, "its table \"a\\u001b[2J\\u000ab\" is not part of schema version 1");
}

TEST_F(ForgedDatabase, ControlCharactersInNamesQuotedBySqliteAreEscaped) {
  const auto file =
      read_trial_file(make({.name = "schema that does not parse",
                            .sql = "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES"
                                   " ('table', 'a\x1b[2J\nb', 'a', 0, 'CREATE TABLE a (')",
                            .salvaged = 5}) +
                      "/tuning.db");
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->damage.contains("(a\\u001b[2J\\u000ab)")) << file->damage;
}

}  // namespace
}  // namespace dorajit::cache
