// tune, show and demo
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kProblem = "compose/bf16,bf16,f32,bf16/v1/c512/r3";

const Words kTune = "tune --rows 8 --cols 512 --device cpu";

using CliTune = CliTest;

TEST_F(CliTune, WinnerIsShown) {
  const auto tuned = sandbox_.json(kTune);
  const auto problem = tuned["problems"][0];
  EXPECT_THAT(problem, has({{"/problem", kProblem}, {"/source", "tuned"}}));
  EXPECT_GT(problem["trials"].size(), 1);
  EXPECT_GT(tuned["statistics"]["trials"], 0);

  const auto shown = sandbox_.json("show --trials");
  ASSERT_EQ(shown["winners"].size(), 1);
  EXPECT_THAT(shown,
              has({{"/winners/0/problem", kProblem}, {"/winners/0/config", problem["config"]}}));
  EXPECT_EQ(shown["winners"][0]["trials"].size(), problem["trials"].size());
  EXPECT_THAT(shown,
              has({{"/database/location", sandbox_.database()}, {"/database/persistent", true}}));

  EXPECT_EQ(sandbox_.json({"show", "--device", "no such device"})["winners"].size(), 0);
}

TEST(CliExplain, SourcesAreListedDownToTheOneThatAnswers) {
  const CliSandbox sandbox;
  const Words explain = "explain --shape 8x512 --device cpu";
  const auto before = sandbox.json(explain)["problems"][0];
  EXPECT_THAT(
      before,
      has({{"/problem", kProblem}, {"/source", "default"}, {"/tuned_by_first_call", true}}));
  EXPECT_EQ(before["sources"].size(), 5);
  EXPECT_EQ(before["sources"].back()["used"], true);

  const auto tuned = sandbox.json(kTune)["problems"][0];
  const auto after = sandbox.json(explain)["problems"][0];
  EXPECT_THAT(after, has({{"/source", "user database"},
                          {"/config", tuned["config"]},
                          {"/tuned_by_first_call", false},
                          {"/sources/0/winner/trials", tuned["trials"].size()}}));

  const CliResult near = sandbox.succeed("explain --shape 8x1024 --device cpu");
  EXPECT_THAT(near.out, HasSubstr("nearest shape    -> "));
  EXPECT_THAT(near.out, HasSubstr(std::string("of ") + kProblem));
  EXPECT_THAT(near.out, HasSubstr("the first call tunes it"));
}

TEST_F(CliTune, WinnersThatAreNotKeptFail) {
  std::filesystem::create_directory(sandbox_.cache_dir());
  std::filesystem::permissions(sandbox_.cache_dir(), std::filesystem::perms::all);
  for (const char* force : {"", "--force"}) {
    const CliResult result = sandbox_.run(with(kTune, with("--json", force)));
    EXPECT_THAT(result, fails(kFailed, "the winners are not kept: " + sandbox_.cache_dir() +
                                           " can be written by every user"));
    EXPECT_EQ(result.document()["problems"][0]["source"], "tuned");
  }
}

TEST_F(CliTune, FileSizeLimitIsLikeAFullDisk) {
  const CliResult result =
      sandbox_.run_words({"/bin/sh", "-c", "ulimit -f 8 && exec \"$0\" \"$@\"", DORAJIT_CLI, "tune",
                          "--shape", "8x512", "--type", "f32", "--device", "cpu"});
  EXPECT_EQ(result.exit_code, 1) << "the library's own kernel runs, untuned: " << result.err;
  EXPECT_THAT(result.out, HasSubstr("winners are not kept: "));
}

TEST_F(CliTune, ImportThatIsNotKeptFails) {
  sandbox_.succeed("tune --shape 8x512 --type f32 --device cpu");
  const std::string file = sandbox_.file("trials.jsonl");
  sandbox_.succeed({"export", "--device", "cpu", "--out", file});
  const CliSandbox another;
  const CliResult refused = another.run_words(
      {"/bin/sh", "-c", "ulimit -f 8 && exec \"$0\" \"$@\"", DORAJIT_CLI, "import", file});
  EXPECT_THAT(refused, fails(kFailed, "nothing was imported, since the tuning database cannot be"));
}

TEST_F(CliTune, FileWithCarriageReturnsIsRead) {
  const std::string file = sandbox_.write(
      "problems.txt", "\xef\xbb\xbf# small\r\n\r\ncompose/f32,f32,f32,f32/v1/c96/r2\r\n");
  const auto result = sandbox_.json({"tune", "--from", file, "--device", "cpu"});
  EXPECT_EQ(result["problems"][0]["problem"], "compose/f32,f32,f32,f32/v1/c96/r2");

  EXPECT_THAT(sandbox_.run({"tune", "--from", sandbox_.folder(), "--device", "cpu"}),
              fails(1, ": Is a directory; --from takes a file of problems"));
}

TEST_F(CliTune, FileOfProblemsIsRead) {
  const std::string file = sandbox_.write("problems.txt",
                                          "# of a small model\n\n"
                                          "compose/f32,f32,f32,f32/v1/c96/r2\n"
                                          "norm_assembly/f32,f32,f32,f32/v8/c96/r0\n"
                                          "compose/f32,f32,f32,f32/v4/c96/r2\n");
  const auto tuned = sandbox_.json({"tune", "--from", file, "--device", "cpu"});
  ASSERT_EQ(tuned["problems"].size(), 2) << "vectors of another device's are not these";
  EXPECT_THAT(tuned, has({{"/problems/0/problem", "compose/f32,f32,f32,f32/v1/c96/r2"},
                          {"/problems/1/problem", "norm_assembly/f32,f32,f32,f32/v1/c96/r0"}}));
}

TEST_F(CliTune, FileWithoutProblemsIsRefused) {
  const std::string file = sandbox_.write("problems.txt", "# none\ncompose/f32/c96\n");
  const Words tune = {"tune", "--from", file, "--device", "cpu"};
  EXPECT_THAT(sandbox_.run(tune),
              fails(kUsage, file + ":2: invalid problem key \"compose/f32/c96\""));
  sandbox_.write("problems.txt", "compose/f32,f32,f32,f32/v1/c4096/r62\n");
  EXPECT_THAT(sandbox_.run(tune).err, HasSubstr("invalid problem key"))
      << "it is too large to be one";
  sandbox_.write("problems.txt", "# none\n");
  EXPECT_THAT(sandbox_.run(tune).err, HasSubstr("has no problem in it"));
  EXPECT_THAT(sandbox_.run("tune --from /nowhere/problems.txt --device cpu").err,
              HasSubstr("cannot read /nowhere/problems.txt"));
}

TEST_F(CliTune, SecondRunNeitherCompilesNorMeasures) {
  const auto first = sandbox_.json(kTune);
  const auto second = sandbox_.json(kTune);
  EXPECT_THAT(second, has({{"/statistics/trials", 0},
                           {"/statistics/compilations", 0},
                           {"/problems/0/config", first["problems"][0]["config"]},
                           {"/problems/0/source", "user database"}}));
}

TEST_F(CliTune, ForceMeasuresAgain) {
  const auto first = sandbox_.json(kTune);
  const auto second = sandbox_.json(with(kTune, {"--force"}));
  EXPECT_THAT(second, has({{"/statistics/trials", first["statistics"]["trials"]},
                           {"/statistics/compilations", 0},
                           {"/problems/0/source", "tuned"}}));
  EXPECT_EQ(sandbox_.json("show")["winners"].size(), 1);
}

TEST_F(CliTune, SizesOfOneBucketAreOneProblem) {
  const auto document = sandbox_.json("tune --shape 5x512,8x512 --shape 7x512 --device cpu");
  EXPECT_EQ(document["problems"].size(), 1);
}

TEST_F(CliTune, PolicyOffIsOverridden) {
  sandbox_.set("DORAJIT_TUNE", "off");
  EXPECT_EQ(sandbox_.json(kTune)["problems"][0]["source"], "tuned");
}

TEST_F(CliTune, UnusableFolderStillTunes) {
  const CliResult result = sandbox_.run(with(kTune, "--cache-dir /dev/null/cache --json"));
  EXPECT_THAT(result, fails(kFailed, "the winners are not kept: "));
  EXPECT_THAT(result.document(),
              has({{"/problems/0/source", "tuned"}, {"/database/persistent", false}}));
  EXPECT_EQ(count(result.err, "warning:"), 1) << result.err;
}

TEST_F(CliTune, DamagedDatabaseIsReportedOnce) {
  sandbox_.succeed(kTune);
  std::ofstream(sandbox_.database(), std::ios::trunc) << "no database at all";
  const CliResult damaged = sandbox_.succeed("show --json");
  EXPECT_EQ(count(damaged.err, "warning:"), 1) << damaged.err;
  EXPECT_EQ(damaged.document()["winners"].size(), 0);
  const CliResult repaired = sandbox_.succeed(with(kTune, "--json"));
  EXPECT_THAT(repaired.err, IsEmpty());
  EXPECT_EQ(repaired.document()["problems"][0]["source"], "tuned");
}

TEST_F(CliTune, InterruptLeavesAWorkingCache) {
  sandbox_.set("DORAJIT_TUNE_SECONDS", "30");
  const pid_t process = sandbox_.start("tune --shape 8x512,8x1024,8x2048,8x4096 --device cpu");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!std::filesystem::exists(sandbox_.cache_dir() + "/artifacts") &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(process, SIGINT);
  const int exit_code = wait_for(process);
  EXPECT_TRUE(exit_code == 128 + SIGINT || exit_code == 0) << exit_code;
  sandbox_.set("DORAJIT_TUNE_SECONDS", "0.2");
  EXPECT_THAT(sandbox_.succeed(kTune).err, IsEmpty());
}

TEST_F(CliTune, SecondsBoundTheTuning) {
  const CliResult none = sandbox_.run("tune --shape 4x64 --device cpu --seconds 0 --json");
  EXPECT_EQ(none.exit_code, 1) << "nothing can be compared in no time";
  EXPECT_EQ(none.document()["statistics"]["trials"], 0);
}

TEST(CliShow, EmptyCacheHasNoWinners) {
  EXPECT_THAT(CliSandbox().succeed("show").out, HasSubstr("0 winners from 0 trials"));
}

TEST(CliDemo, SecondRunNeitherCompilesNorTunes) {
  const CliSandbox sandbox;
  const Words arguments = "demo --quick --device cpu";
  const auto tuned = sandbox.json(arguments);
  EXPECT_EQ(tuned["problems"].size(), 6);
  EXPECT_EQ(tuned["all_known"], false);
  for (const auto& problem : tuned["problems"]) {
    for (const char* candidate : {"default", "winner", "unfused", "copy"}) {
      EXPECT_GT(problem[candidate]["median_ns"], 0) << candidate;
      EXPECT_GT(problem[candidate]["samples"], 0) << candidate;
    }
    // bf16 lora, base and out, and one fp32 gain
    const std::int64_t rows = problem["measured_rows"];
    const std::int64_t cols = problem["cols"];
    EXPECT_EQ(problem["bytes"], rows * cols * 3 * 2 + cols * 4);
  }

  const auto known = sandbox.json(arguments);
  EXPECT_THAT(
      known,
      has({{"/statistics/compilations", 0}, {"/statistics/trials", 0}, {"/all_known", true}}));

  const CliResult third = sandbox.run("demo --quick --device cpu --tokens 1");
  EXPECT_THAT(third.out, HasSubstr("nothing compiled, nothing tuned: all 3 winners came from " +
                                   sandbox.cache_dir()));
  EXPECT_THAT(third.err, IsEmpty()) << "no progress bar where there is no terminal";
}

}  // namespace
}  // namespace dorajit::test
