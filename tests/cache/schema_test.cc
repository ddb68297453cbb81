#include "cache/schema.h"

#include <gtest/gtest.h>

#include "cache/tuning_store.h"
#include "tests/cache/raw_database.h"
#include "tests/cache/temporary_directory.h"

namespace dorajit::cache {
namespace {

TEST(Schema, PublishedFileIsComplete) {
  const TemporaryDirectory directory;
  TuningStore::open(directory.path());
  // The header alone says all of it, so nothing is left for the first users to race about.
  EXPECT_EQ(count_names(directory.path(), "tuning.db-"), 0);
  EXPECT_EQ(count_names(directory.path(), ".tmp."), 0);
  const std::string header = read_file(directory.file("tuning.db")).substr(0, 100);
  EXPECT_EQ(header.substr(18, 2), std::string("\2\2"));  // WAL
  EXPECT_EQ(header.substr(60, 4), std::string("\0\0\0\4", 4));
  EXPECT_EQ(header.substr(68, 4), "DORJ");

  RawDatabase raw(directory.file("tuning.db"));
  EXPECT_EQ(raw.ask("PRAGMA journal_mode"), "wal");
  EXPECT_EQ(raw.ask("SELECT count(*) FROM pragma_table_list WHERE name IN ('trials','winners',"
                    "'imports','import_trials') AND strict = 1"),
            "4");
}

TEST(Schema, VersionsOnlyRise) {
  std::int64_t last = 0;
  for (const Migration& step : migrations()) {
    EXPECT_GT(step.version, last);
    last = step.version;
  }
  EXPECT_EQ(last, schema_version());
}

TEST(Schema, MigratesFromWhereTheFileStands) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("x.db");
  {
    RawDatabase(path).run("CREATE TABLE a (n INTEGER) STRICT; PRAGMA user_version = 1");
  }
  const Migration steps[] = {
      {1, "CREATE TABLE a (n INTEGER) STRICT"},
      {2, "ALTER TABLE a ADD COLUMN m INTEGER"},
      {3, "CREATE TABLE b (n INTEGER) STRICT"},
  };
  auto connection = Connection::open(path, Connection::Mode::kReadWrite);
  ASSERT_TRUE(connection);
  for (int round = 0; round < 2; ++round) {
    const auto status = migrate(*connection, steps);
    ASSERT_TRUE(status) << status.error().message;
  }
  EXPECT_EQ(connection->query_integer("PRAGMA user_version"), 3);
  EXPECT_TRUE(connection->execute("INSERT INTO a (n, m) VALUES (1, 2); INSERT INTO b VALUES (3)"));
}

TEST(Schema, FailedMigrationNamesTheStatement) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("x.db");
  {
    RawDatabase(path).run("CREATE TABLE a (n INTEGER) STRICT");
  }
  const Migration steps[] = {{1, "CREATE TABLE a (n INTEGER) STRICT"}};
  auto connection = Connection::open(path, Connection::Mode::kReadWrite);
  ASSERT_TRUE(connection);
  const auto status = migrate(*connection, steps);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("CREATE TABLE a"), std::string::npos);
  EXPECT_EQ(connection->query_integer("PRAGMA user_version"), 0);
}

}  // namespace
}  // namespace dorajit::cache
