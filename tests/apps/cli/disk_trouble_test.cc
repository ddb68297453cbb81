// Runs that are killed at, or find the disk full from, every single step they write, or whose reads
// fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <random>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kKilled = 128 + SIGKILL;

Words tune(const std::string& shape) {
  return {"tune", "--shape", shape, "--type", "f32", "--device", "cpu", "--json"};
}

// A cache folder with one winner, all kernels of the variant and everything that a tuning makes
// once; each case begins with a copy of it.
class DiskTrouble : public testing::Test {
 protected:
  DiskTrouble() {
    sandbox_.set("DORAJIT_TUNE_SECONDS", "0.02");
    sandbox_.succeed(tune("8x512"));
    fs::rename(sandbox_.cache_dir(), prepared());
    start_over();
  }

  std::string prepared() const { return sandbox_.file("prepared"); }

  void start_over() { sandbox_.copy_cache_of(prepared()); }

  void bring(const std::string& trouble, int step = 0) {
    sandbox_.bring_disk_trouble(trouble, sandbox_.cache_dir(), step);
  }

  // What was committed before is there, nothing is damaged, and what was interrupted can be done.
  // Whether it had been done.
  bool expect_all_well(int step) {
    const CliResult known = sandbox_.run(tune("8x512"));
    EXPECT_EQ(known.exit_code, 0) << step << known.err;
    const auto document = known.document();
    EXPECT_EQ(document["problems"][0]["source"], "user database") << step << known.err;
    EXPECT_EQ(document["statistics"]["compilations"], 0) << step;
    const CliResult again = sandbox_.run(tune("8x1024"));
    EXPECT_EQ(again.exit_code, 0) << step << again.err;
    // Nothing but what the launch of a config that did not end tells of it.
    if (again.err.find("a process that launched it") == std::string::npos) {
      EXPECT_EQ(again.err, "") << step;
    }
    EXPECT_EQ(again.document()["database"]["persistent"], true) << step;
    EXPECT_EQ(sandbox_.run({"doctor", sandbox_.database()}).exit_code, 0) << step;
    for (const auto& entry : fs::directory_iterator(sandbox_.cache_dir())) {
      EXPECT_EQ(entry.path().filename().string().find("corrupt"), std::string::npos) << step;
    }
    return again.document()["problems"][0]["source"] == "user database";
  }

  using Check = std::function<void(const CliResult&, bool is_kept, bool may_end_before)>;
  void read_in_trouble(int runs);
  void tune_in_trouble(const std::string& trouble, int stride, const Check& check);

  CliSandbox sandbox_;
};

// A tuning with the trouble at every so many steps, from a random one on; then what it came to.
void DiskTrouble::tune_in_trouble(const std::string& trouble, int stride, const Check& check) {
  const int steps = sandbox_.steps_of(tune("8x1024"), sandbox_.cache_dir());
  ASSERT_GT(steps, 50);
  std::random_device random;
  for (int step = std::uniform_int_distribution(1, stride)(random); step <= steps; step += stride) {
    start_over();
    bring(trouble, step);
    const CliResult result = sandbox_.run(tune("8x1024"));
    bring("");
    SCOPED_TRACE("step " + std::to_string(step) + ": " + result.err);
    const bool is_kept = expect_all_well(step);
    // How many configs are verified once more depends on how many the time sufficed for, so the
    // last steps may not be reached.
    check(result, is_kept, step > steps * 3 / 4);
  }
}

// Runs of `show` and of a tuning in which one read of six fails, another one in each.
void DiskTrouble::read_in_trouble(int runs) {
  for (int run = 1; run <= runs; ++run) {
    SCOPED_TRACE(run);
    start_over();
    bring("unreadable", run);
    const CliResult show = sandbox_.run("show");
    const CliResult tuning = sandbox_.run(tune("8x1024"));
    bring("");
    if (show.exit_code == 0) EXPECT_THAT(show.out, HasSubstr("/c512/"));
    if (show.exit_code != 0) EXPECT_THAT(show.err, HasSubstr("cannot read the tuning database"));
    if (tuning.exit_code != 0) EXPECT_THAT(tuning.err, HasSubstr("winners are not kept"));
    EXPECT_EQ(tuning.document()["problems"].size(), 1) << tuning.err;
    expect_all_well(run);
  }
}

void expect_killed(const CliResult& result, bool /*is_kept*/, bool may_end_before) {
  if (result.exit_code != 0 || !may_end_before) EXPECT_EQ(result.exit_code, kKilled);
}

// Its winner was tuned, also where the exit code tells that it is not kept.
void expect_served(const CliResult& result, bool is_kept, bool /*may_end_before*/) {
  if (!is_kept || result.exit_code != 0) {
    EXPECT_THAT(result, fails(kFailed, "the winners are not kept: "));
  }
  EXPECT_EQ(result.document()["problems"][0]["source"], "tuned");
  if (!is_kept) EXPECT_THAT(result.err, HasSubstr("tuning results stay in memory"));
  EXPECT_EQ(result.err.find("in memory"), result.err.rfind("in memory"));
}

TEST_F(DiskTrouble, KilledAtAnyStepLosesNoWinner) { tune_in_trouble("kill", 23, expect_killed); }
TEST_F(DiskTrouble, FullDiskAtAnyStepFailsNoCall) { tune_in_trouble("full", 23, expect_served); }

TEST_F(DiskTrouble, ReadErrorsLeaveTheDatabaseInPlace) { read_in_trouble(12); }

class DiskTroubleInFull : public DiskTrouble {};
TEST_F(DiskTroubleInFull, ReadErrorsLeaveTheDatabaseInPlace) { read_in_trouble(1000); }
TEST_F(DiskTroubleInFull, KilledAtEveryStepLosesNoWinner) {
  tune_in_trouble("kill", 1, expect_killed);
}
TEST_F(DiskTroubleInFull, FullDiskAtEveryStepFailsNoCall) {
  tune_in_trouble("full", 1, expect_served);
}

TEST_F(DiskTrouble, OnANetworkFileSystemTheDatabaseStaysLocal) {
  fs::remove_all(sandbox_.cache_dir());
  bring("network");
  const CliResult first = sandbox_.succeed(tune("8x512"));
  const std::string location = first.document()["database"]["location"];
  EXPECT_THAT(location, testing::StartsWith("/var/tmp/dorajit-"));
  EXPECT_THAT(first.err, HasSubstr("network file system"));
  EXPECT_THAT(first.err, HasSubstr(location));
  EXPECT_FALSE(fs::exists(sandbox_.database()));
  EXPECT_TRUE(fs::exists(sandbox_.cache_dir() + "/artifacts"));
  EXPECT_EQ(fs::status(fs::path(location).parent_path()).permissions(), fs::perms::owner_all);
  const CliResult second = sandbox_.run(tune("8x512"));
  EXPECT_THAT(second.document(),
              has({{"/problems/0/source", "user database"}, {"/statistics/compilations", 0}}));

  // Where somebody else may write, nothing is read.
  fs::permissions(fs::path(location).parent_path(), fs::perms::all);
  const CliResult third = sandbox_.run(tune("8x512"));
  EXPECT_EQ(third.exit_code, kFailed) << third.err;
  EXPECT_THAT(third.document(),
              has({{"/problems/0/source", "tuned"}, {"/database/location", "memory"}}));
  EXPECT_THAT(third.err, HasSubstr("only this user can write"));
  fs::remove_all(fs::path(location).parent_path());
}

}  // namespace
}  // namespace dorajit::test
