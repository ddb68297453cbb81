// Commands whose output is what the tuning database has, where it cannot be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "cache/database/tuning_store.h"
#include "cache/records/tuning_records.h"
#include "tests/apps/cli/cli_sandbox.h"
#include "tests/cache/records/sample_records.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

using CliUnreadableDatabase = CliTest;

TEST_F(CliUnreadableDatabase, FailsEveryCommandThatReadsIt) {
  const std::string database = sandbox_.database();
  const std::string out = sandbox_.file("made");
  std::filesystem::create_directories(database);  // a folder in the place of the file
  const std::vector<Words> commands = {{"export"},
                                       {"export", "--out", out},
                                       {"show"},
                                       {"show", "--trials", "--json"},
                                       {"report", "--json"},
                                       {"report", "--html", out},
                                       {"freeze", "--device", "cpu"}};
  for (const Words& command : commands) {
    const CliResult result = sandbox_.run(command);
    EXPECT_EQ(result.exit_code, kFailed) << command[0];
    if (command.back() != "--json") EXPECT_THAT(result.out, IsEmpty()) << command[0];
    EXPECT_THAT(result.err, HasSubstr("error: cannot read the tuning database " + database + ": " +
                                      database + " is not a file; `dorajit doctor` checks"))
        << command[0];
  }
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(CliUnreadableDatabase, UnusableFolderIsReported) {
  const CliResult result = sandbox_.run("export --cache-dir /dev/null/cache");
  EXPECT_THAT(result, fails(kFailed, "error: there is no tuning database to read: cannot"));
  EXPECT_THAT(result.err, HasSubstr("set DORAJIT_CACHE_DIR to a writable folder"));
}

TEST_F(CliUnreadableDatabase, TrialsThatJsonCannotHoldAreCounted) {
  cache::Trial endless = cache::sample_trial(1, 0);
  endless.median_ns = std::numeric_limits<double>::infinity();
  const std::vector<cache::Trial> trials = {endless, cache::sample_trial(1, 1)};
  cache::TuningStore::open(sandbox_.cache_dir())->merge(trials);
  const std::string out = sandbox_.file("out.jsonl");
  const char* left_out = "1 trial left out, which JSON cannot hold";
  EXPECT_THAT(sandbox_.run("export").err, HasSubstr(left_out));
  EXPECT_THAT(sandbox_.run({"export", "--out", out}).out, HasSubstr(left_out));
  EXPECT_EQ(sandbox_.json({"export", "--out", out})["left_out"], 1);
}

TEST_F(CliUnreadableDatabase, TrialsOfTheFutureAreNotExported) {
  cache::Trial future = cache::sample_trial(1, 0);
  future.created_unix_s = cache::latest_plausible_time() + 3600;
  const std::vector<cache::Trial> trials = {future, cache::sample_trial(1, 1)};
  cache::TuningStore::open(sandbox_.cache_dir())->merge(trials);
  for (const char* name : {"/out.jsonl", "/out.db"}) {
    const std::string out = sandbox_.folder() + name;
    EXPECT_THAT(sandbox_.run({"export", "--out", out}).out,
                HasSubstr("1 trial of the future left out"));
    const CliResult checked = sandbox_.run({"doctor", out});
    EXPECT_EQ(checked.exit_code, 0) << checked.out;
    const auto again = sandbox_.json({"export", "--out", out});
    EXPECT_THAT(again, has({{"/future", 1}, {"/trials", 1}}));
  }
}

}  // namespace
}  // namespace dorajit::test
