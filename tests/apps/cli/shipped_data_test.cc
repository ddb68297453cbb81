// Databases to ship: export --ship and export to *.db
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "cache/database/trial_files.h"
#include "cache/records/winner_choice.h"
#include "tests/apps/cli/cli_sandbox.h"
#include "tests/cache/records/sample_records.h"

namespace dorajit::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kShipped = std::string(DORAJIT_SOURCE_DIR) + "/databases/nvidia_h200.jsonl";

class CliShippedData : public CliTest {
 protected:
  // Of two devices and other kernels than this program's.
  void write_trials(const std::string& path, int problem) {
    std::vector<cache::Trial> trials;
    for (const char* device : {"cuda/NVIDIA X1/sm_90/8 GiB", "cuda/NVIDIA Y/sm_80"}) {
      for (cache::Trial trial : cache::sample_trials(problem, 6)) {
        trial.device = device;
        trials.push_back(trial);
      }
    }
    ASSERT_TRUE(cache::write_trial_file(path, trials));
  }
};

TEST_F(CliShippedData, ShippedTrialsProveTheirWinners) {
  const auto exported =
      sandbox_.json({"export", "--ship", "--from", kShipped, "--out", file("h200.jsonl")});
  EXPECT_EQ(exported["other_kernels"], 0);
  EXPECT_TRUE(read_file(file("h200.jsonl")) == read_file(kShipped));
  const auto file = cache::read_trial_file(kShipped);
  ASSERT_TRUE(file);
  EXPECT_EQ(exported["winners"], cache::choose_winners(file->trials).size());
}

TEST_F(CliShippedData, SameTrialsGiveTheSameBytes) {
  ::umask(022);
  write_trials(file("a.jsonl"), 1);
  write_trials(file("b.jsonl"), 2);
  for (const std::string ending : {".jsonl", ".db"}) {
    const std::string first = file("1" + ending);
    const std::string second = file("2" + ending);
    const auto one = sandbox_.json(
        {"export", "--out", first, "--from", file("a.jsonl"), "--from", file("b.jsonl")});
    EXPECT_EQ(one["trials"], 24);
    sandbox_.succeed({"export", "--out", second, "--from", file("b.jsonl"), "--from",
                      file("a.jsonl"), "--from", file("b.jsonl")});
    EXPECT_TRUE(read_file(first) == read_file(second)) << ending;
    EXPECT_NE(fs::status(first).permissions() & fs::perms::group_read, fs::perms::none)
        << "others are to read it";
    EXPECT_EQ(sandbox_.run({"doctor", first}).exit_code, 0) << ending;
  }
}

TEST_F(CliShippedData, ExportedDatabaseServesAsShipped) {
  sandbox_.set("DORAJIT_TUNE_SECONDS", "0.05");
  const Words tune = "tune --shape 4x64 --type f32 --device cpu --json";
  sandbox_.succeed(tune);
  fs::create_directory(file("shipped"));
  const CliResult exported =
      sandbox_.succeed({"export", "--ship", "--out", file("shipped/this_machine.db")});
  EXPECT_EQ(exported.err, "");
  sandbox_.set("DORAJIT_CACHE_DIR", file("elsewhere"));
  sandbox_.set("DORAJIT_DATABASES", file("shipped"));
  sandbox_.set("DORAJIT_TUNE_SECONDS", "30");  // enough to verify the winner, which nothing tunes
  EXPECT_EQ(sandbox_.json(tune)["problems"][0]["source"], "shipped database");
}

TEST_F(CliShippedData, OtherKernelsAndDevicesAreLeftOut) {
  write_trials(file("a.jsonl"), 1);
  EXPECT_THAT(
      sandbox_.run({"export", "--ship", "--out", file("x.jsonl"), "--from", file("a.jsonl")}),
      fails(1, "there is nothing to ship: 12 trials of other kernels"));
  EXPECT_FALSE(fs::exists(file("x.jsonl")));
  const auto some = sandbox_.json({"export", "--ship", "--out", file("x.jsonl"), "--from",
                                   file("a.jsonl"), "--from", kShipped});
  EXPECT_EQ(some["other_kernels"], 12);
  EXPECT_TRUE(read_file(file("x.jsonl")) == read_file(kShipped));
  const auto one = sandbox_.json(
      {"export", "--device", "NVIDIA Y", "--out", file("y.jsonl"), "--from", file("a.jsonl")});
  EXPECT_EQ(one["trials"], 6);
}

TEST_F(CliShippedData, UnwritablePathIsReported) {
  write_trials(file("a.jsonl"), 1);
  const CliResult missing =
      sandbox_.run({"export", "--out", file("none/x.db"), "--from", file("a.jsonl")});
  EXPECT_THAT(missing, fails(1, "none/x.db"));
  EXPECT_THAT(missing.err, HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace dorajit::test
