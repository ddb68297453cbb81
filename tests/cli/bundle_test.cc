// bundle-db
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "cache/trial_files.h"
#include "tests/cache/sample_records.h"
#include "tests/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kShipped = std::string(DORAJIT_SOURCE_DIR) + "/databases/nvidia_h200.jsonl";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class CliBundle : public testing::Test {
 protected:
  [[nodiscard]] std::string file(const std::string& name) const {
    return sandbox_.folder() + "/" + name;
  }
  // Trials of three devices, two of which are one model.
  void write_trials(const std::string& path, int problem) {
    std::vector<cache::Trial> trials;
    for (const char* device :
         {"cuda/NVIDIA X1/sm_90/8 GiB", "cuda/NVIDIA X1/sm_90/4 GiB", "cuda/NVIDIA Y/sm_80"}) {
      for (cache::Trial trial : cache::sample_trials(problem, 6)) {
        trial.device = device;
        trials.push_back(trial);
      }
    }
    ASSERT_TRUE(cache::write_trial_file(path, trials));
  }

  CliSandbox sandbox_;
};

TEST_F(CliBundle, WhatShipsIsABundleOfItself) {
  fs::create_directory(file("bundles"));
  const CliResult bundled =
      sandbox_.run({"bundle-db", "--out", file("bundles"), kShipped, "--json"});
  ASSERT_EQ(bundled.exit_code, 0) << bundled.err;
  EXPECT_EQ(bundled.document()["left_out"], 0);
  EXPECT_EQ(bundled.document()["bundles"][0]["name"], "nvidia_h200");
  EXPECT_TRUE(read_file(file("bundles/nvidia_h200.jsonl")) == read_file(kShipped));
}

TEST_F(CliBundle, OneFilePerModelAndTheSameBytesWhateverTheOrder) {
  ::umask(022);
  write_trials(file("a.jsonl"), 1);
  write_trials(file("b.jsonl"), 2);
  for (const char* folder : {"1", "2"}) fs::create_directory(file(folder));
  const CliResult first = sandbox_.run({"bundle-db", "--all", "--sqlite", "--out", file("1"),
                                        file("a.jsonl"), file("b.jsonl"), "--json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const CliResult second = sandbox_.run({"bundle-db", "--all", "--sqlite", "--out", file("2"),
                                         file("b.jsonl"), file("a.jsonl"), file("b.jsonl")});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  const auto bundles = first.document()["bundles"];
  ASSERT_EQ(bundles.size(), 2U);
  EXPECT_EQ(bundles[0]["devices"].size(), 2U);
  EXPECT_EQ(bundles[0]["trials"], 24);
  EXPECT_EQ(bundles[0]["hosts"].size(), 12U);
  EXPECT_EQ(bundles[0]["drivers"][0], "driver-575.57");
  EXPECT_EQ(bundles[0]["last_unix_s"], 1'700'000'005);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(file("1"))) {
    names.push_back(entry.path().filename().string());
    EXPECT_TRUE(read_file(entry.path().string()) == read_file(file("2/" + names.back())))
        << names.back();
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("nvidia_x1.jsonl", "nvidia_x1.db",
                                                   "nvidia_y.jsonl", "nvidia_y.db"));
  for (const std::string& name : names) {
    EXPECT_NE(fs::status(file("1/" + name)).permissions() & fs::perms::group_read, fs::perms::none)
        << "others are to read it: " << name;
    EXPECT_EQ(sandbox_.run({"verify", file("1/" + name)}).exit_code, 0) << name;
  }
}

TEST_F(CliBundle, DatabasesServeAsTheShippedOnes) {
  sandbox_.set("DORAJIT_TUNE_SECONDS", "0.05");
  const std::vector<std::string> tune = {"tune", "--shape",  "4x64", "--type",
                                         "f32",  "--device", "cpu",  "--json"};
  ASSERT_EQ(sandbox_.run(tune).exit_code, 0);
  fs::create_directory(file("bundles"));
  const CliResult bundled = sandbox_.run(
      {"bundle-db", "--sqlite", "--out", file("bundles"), sandbox_.cache_dir() + "/tuning.db"});
  ASSERT_EQ(bundled.exit_code, 0) << bundled.err;
  EXPECT_EQ(bundled.err, "");
  sandbox_.set("DORAJIT_CACHE_DIR", file("elsewhere"));
  sandbox_.set("DORAJIT_DATABASES", file("bundles"));
  EXPECT_EQ(sandbox_.run(tune).document()["problems"][0]["rung"], "shipped database");
}

TEST_F(CliBundle, LeavesOutWhatOtherTemplatesMade) {
  write_trials(file("a.jsonl"), 1);
  const CliResult nothing =
      sandbox_.run({"bundle-db", "--out", sandbox_.folder(), file("a.jsonl")});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.err, HasSubstr("18 trials left out"));
  const CliResult some =
      sandbox_.run({"bundle-db", "--out", sandbox_.folder(), file("a.jsonl"), kShipped, "--json"});
  EXPECT_EQ(some.document()["left_out"], 18);
  EXPECT_FALSE(fs::exists(file("nvidia_y.jsonl")));
}

TEST_F(CliBundle, RefusesWhatItCannotWrite) {
  const CliResult missing = sandbox_.run({"bundle-db", "--out", file("none"), kShipped});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("none/nvidia_h200.jsonl: No such file or directory"));
  write_trials(file("a.jsonl"), 1);
  ASSERT_EQ(
      sandbox_.run({"bundle-db", "--all", "--sqlite", "--out", sandbox_.folder(), file("a.jsonl")})
          .exit_code,
      0);
  EXPECT_EQ(
      sandbox_
          .run({"bundle-db", "--all", "--sqlite", "--out", sandbox_.folder(), file("nvidia_y.db")})
          .exit_code,
      2);
}

}  // namespace
}  // namespace dorajit::test
