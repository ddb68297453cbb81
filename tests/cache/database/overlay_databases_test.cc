#include "cache/database/overlay_databases.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "cache/database/tuning_store.h"
#include "tests/cache/database/raw_database.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

class Overlays : public testing::Test {
 protected:
  // A closed database with the winner of one problem.
  std::string make_overlay(const std::string& name, int problem, double median_ns = 500) {
    Winner winner = sample_winner(problem);
    winner.median_ns = median_ns;
    TuningStore::open(directory_.file(name))->record(sample_trials(problem, 2), winner);
    RawDatabase(directory_.file(name + "/tuning.db")).run("PRAGMA wal_checkpoint(TRUNCATE)");
    return directory_.file(name + "/tuning.db");
  }

  std::unique_ptr<TuningStore> open(std::vector<std::string> overlays) {
    return TuningStore::open(directory_.file("user"), {.overlays = std::move(overlays)});
  }

  TemporaryDirectory directory_;
  CapturedLog log_;
};

TEST_F(Overlays, AnswerForProblemsThatTheUserLacks) {
  const auto store = open({make_overlay("a", 1), make_overlay("b", 2)});
  for (const int problem : {1, 2}) {
    EXPECT_FALSE(store->find_winner(kDevice, sample_problem(problem)));
    const auto found = store->find_overlay_winner(kDevice, sample_problem(problem));
    ASSERT_TRUE(found) << problem;
    EXPECT_EQ(found->median_ns, 500);
  }
  EXPECT_FALSE(store->find_overlay_winner(kDevice, sample_problem(3)));
  EXPECT_TRUE(store->winners().empty());
  EXPECT_EQ(log_.size(), 0);
}

TEST_F(Overlays, WinnersOfTheUserComeFirst) {
  const auto store = open({make_overlay("a", 1), make_overlay("b", 2)});
  store->record({}, sample_winner(1));
  const std::string problem = sample_problem(1);
  const auto found = store->winners_of_variant(problem.substr(0, problem.rfind("/v")));
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[0].median_ns, sample_winner(1).median_ns);
  EXPECT_EQ(found[1].median_ns, 500);
  EXPECT_EQ(found[2].problem, sample_problem(2));
  EXPECT_TRUE(store->winners_of_variant("compose/f64,f64,f64,f64").empty());
}

TEST_F(Overlays, AreTheSortedDatabasesOfAFolder) {
  const std::string folder = directory_.file("shipped");
  std::filesystem::create_directory(folder);
  for (const char* name : {"b.db", "a.db", "a.jsonl"}) write_file(folder + "/" + name, "x");
  EXPECT_EQ(databases_in(folder), (std::vector{folder + "/a.db", folder + "/b.db"}));
  EXPECT_TRUE(databases_in("").empty());
  EXPECT_EQ(log_.size(), 0);
  EXPECT_TRUE(databases_in(directory_.file("gone")).empty());
  EXPECT_EQ(log_.size(), 1);
}

TEST_F(Overlays, AreSearchedInOrder) {
  const auto store = open({make_overlay("a", 1, 400), make_overlay("b", 1, 300)});
  EXPECT_EQ(store->find_overlay_winner(kDevice, sample_problem(1))->median_ns, 400);
}

TEST_F(Overlays, AnswerWithoutACacheFolder) {
  const auto store = TuningStore::open("", {.overlays = {make_overlay("a", 1)}});
  EXPECT_TRUE(store->find_overlay_winner(kDevice, sample_problem(1)));
}

TEST_F(Overlays, AreReadWithoutCreatingFiles) {
  const std::string path = make_overlay("a", 1);
  std::filesystem::remove(directory_.file("a/tuning.db-wal"));
  std::filesystem::remove(directory_.file("a/tuning.db-shm"));
  const std::string before = read_file(path);
  EXPECT_TRUE(open({path})->find_overlay_winner(kDevice, sample_problem(1)));
  EXPECT_TRUE(read_file(path) == before);
  EXPECT_EQ(count_names(directory_.file("a"), "tuning.db-"), 0);
}

TEST_F(Overlays, UnusableDatabasesAreSkippedWithOneWarningEach) {
  const std::string missing = directory_.file("missing.db");
  const std::string noise = directory_.file("noise.db");
  write_file(noise, std::string(20'000, 'x'));
  const std::string foreign = directory_.file("foreign.db");
  RawDatabase(foreign).run("CREATE TABLE winners (id INTEGER)");
  const std::string torn = make_overlay("torn", 1);
  std::filesystem::resize_file(torn, std::filesystem::file_size(torn) / 2);
  const std::string newer = make_overlay("newer", 1);
  RawDatabase(newer).run("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)");
  const std::string folder = directory_.path();

  const auto store =
      open({missing, noise, foreign, torn, newer, folder, make_overlay("good", 1, 321)});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(store->find_overlay_winner(kDevice, sample_problem(1))->median_ns, 321);
  }
  for (const std::string& path : {missing, noise, foreign, torn, newer, folder}) {
    EXPECT_EQ(log_.count("the tuning results in " + path + " are not used"), 1) << path;
  }
  EXPECT_EQ(log_.size(), 6);
  EXPECT_EQ(log_.count("written by a newer dorajit"), 1);
}

TEST_F(Overlays, AlteredWinnerIsNotUsed) {
  const std::string path = make_overlay("a", 1);
  RawDatabase(path).run("UPDATE winners SET median_ns = 1.0; PRAGMA wal_checkpoint(TRUNCATE)");
  EXPECT_FALSE(open({path})->find_overlay_winner(kDevice, sample_problem(1)));
}

}  // namespace
}  // namespace dorajit::cache
