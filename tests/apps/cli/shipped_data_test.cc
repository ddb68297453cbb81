// Databases to ship: export --ship and export to *.db
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
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

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class CliShippedData : public testing::Test {
 protected:
  [[nodiscard]] std::string file(const std::string& name) const {
    return sandbox_.folder() + "/" + name;
  }
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

  CliSandbox sandbox_;
};

TEST_F(CliShippedData, ShippedTrialsProveTheirWinners) {
  const CliResult exported =
      sandbox_.run({"export", "--ship", "--from", kShipped, "--out", file("h200.jsonl"), "--json"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_EQ(exported.document()["other_kernels"], 0);
  EXPECT_TRUE(read_file(file("h200.jsonl")) == read_file(kShipped));
  const auto file = cache::read_trial_file(kShipped);
  ASSERT_TRUE(file);
  EXPECT_EQ(exported.document()["winners"], cache::choose_winners(file->trials).size());
}

TEST_F(CliShippedData, SameTrialsGiveTheSameBytes) {
  ::umask(022);
  write_trials(file("a.jsonl"), 1);
  write_trials(file("b.jsonl"), 2);
  for (const std::string ending : {".jsonl", ".db"}) {
    const std::string first = file("1" + ending);
    const std::string second = file("2" + ending);
    const CliResult one = sandbox_.run(
        {"export", "--out", first, "--from", file("a.jsonl"), "--from", file("b.jsonl"), "--json"});
    ASSERT_EQ(one.exit_code, 0) << one.err;
    EXPECT_EQ(one.document()["trials"], 24);
    ASSERT_EQ(sandbox_
                  .run({"export", "--out", second, "--from", file("b.jsonl"), "--from",
                        file("a.jsonl"), "--from", file("b.jsonl")})
                  .exit_code,
              0);
    EXPECT_TRUE(read_file(first) == read_file(second)) << ending;
    EXPECT_NE(fs::status(first).permissions() & fs::perms::group_read, fs::perms::none)
        << "others are to read it";
    EXPECT_EQ(sandbox_.run({"doctor", first}).exit_code, 0) << ending;
  }
}

TEST_F(CliShippedData, ExportedDatabaseServesAsShipped) {
  sandbox_.set("DORAJIT_TUNE_SECONDS", "0.05");
  const std::vector<std::string> tune = {"tune", "--shape",  "4x64", "--type",
                                         "f32",  "--device", "cpu",  "--json"};
  ASSERT_EQ(sandbox_.run(tune).exit_code, 0);
  fs::create_directory(file("shipped"));
  const CliResult exported =
      sandbox_.run({"export", "--ship", "--out", file("shipped/this_machine.db")});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_EQ(exported.err, "");
  sandbox_.set("DORAJIT_CACHE_DIR", file("elsewhere"));
  sandbox_.set("DORAJIT_DATABASES", file("shipped"));
  sandbox_.set("DORAJIT_TUNE_SECONDS", "30");  // enough to verify the winner, which nothing tunes
  EXPECT_EQ(sandbox_.run(tune).document()["problems"][0]["source"], "shipped database");
}

TEST_F(CliShippedData, OtherKernelsAndDevicesAreLeftOut) {
  write_trials(file("a.jsonl"), 1);
  const CliResult nothing =
      sandbox_.run({"export", "--ship", "--out", file("x.jsonl"), "--from", file("a.jsonl")});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.err, HasSubstr("there is nothing to ship: 12 trials of other kernels"));
  EXPECT_FALSE(fs::exists(file("x.jsonl")));
  const CliResult some = sandbox_.run({"export", "--ship", "--out", file("x.jsonl"), "--from",
                                       file("a.jsonl"), "--from", kShipped, "--json"});
  EXPECT_EQ(some.document()["other_kernels"], 12);
  EXPECT_TRUE(read_file(file("x.jsonl")) == read_file(kShipped));
  const CliResult one = sandbox_.run({"export", "--device", "NVIDIA Y", "--out", file("y.jsonl"),
                                      "--from", file("a.jsonl"), "--json"});
  EXPECT_EQ(one.document()["trials"], 6);
}

TEST_F(CliShippedData, UnwritablePathIsReported) {
  write_trials(file("a.jsonl"), 1);
  const CliResult missing =
      sandbox_.run({"export", "--out", file("none/x.db"), "--from", file("a.jsonl")});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("none/x.db"));
  EXPECT_THAT(missing.err, HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace dorajit::test
