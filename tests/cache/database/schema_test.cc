#include "cache/database/schema.h"

#include <gtest/gtest.h>

#include "cache/database/tuning_store.h"
#include "runtime/base/hash.h"
#include "tests/cache/database/raw_database.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

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
