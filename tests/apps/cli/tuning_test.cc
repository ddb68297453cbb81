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

std::vector<std::string> tune_arguments() {
  return {"tune", "--rows", "8", "--cols", "512", "--device", "cpu", "--json"};
}

std::ptrdiff_t warnings_in(const std::string& err) {
  std::ptrdiff_t count = 0;
  for (std::size_t at = err.find("warning:"); at != std::string::npos;
       at = err.find("warning:", at + 1)) {
    ++count;
  }
  return count;
}

TEST(CliTune, WinnerIsShown) {
  const CliSandbox sandbox;
  const CliResult tuned = sandbox.run(tune_arguments());
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const auto problem = tuned.document()["problems"][0];
  EXPECT_EQ(problem["problem"], kProblem);
  EXPECT_EQ(problem["source"], "tuned");
  EXPECT_GT(problem["trials"].size(), 1);
  EXPECT_GT(tuned.document()["statistics"]["trials"], 0);

  const auto shown = sandbox.run({"show", "--trials", "--json"}).document();
  ASSERT_EQ(shown["winners"].size(), 1);
  EXPECT_EQ(shown["winners"][0]["problem"], kProblem);
  EXPECT_EQ(shown["winners"][0]["config"], problem["config"]);
  EXPECT_EQ(shown["winners"][0]["trials"].size(), problem["trials"].size());
  EXPECT_EQ(shown["database"]["location"], sandbox.cache_dir() + "/tuning.db");
  EXPECT_EQ(shown["database"]["persistent"], true);

  EXPECT_EQ(
      sandbox.run({"show", "--device", "no such device", "--json"}).document()["winners"].size(),
      0);
}

TEST(CliExplain, SourcesAreListedDownToTheOneThatAnswers) {
  const CliSandbox sandbox;
  const std::vector<std::string> explain = {"explain",  "--shape", "8x512",
                                            "--device", "cpu",     "--json"};
  const auto before = sandbox.run(explain).document()["problems"][0];
  EXPECT_EQ(before["problem"], kProblem);
  EXPECT_EQ(before["source"], "default");
  EXPECT_EQ(before["tuned_by_first_call"], true);
  EXPECT_EQ(before["sources"].size(), 5);
  EXPECT_EQ(before["sources"].back()["used"], true);

  const auto tuned = sandbox.run(tune_arguments()).document()["problems"][0];
  const auto after = sandbox.run(explain).document()["problems"][0];
  EXPECT_EQ(after["source"], "user database");
  EXPECT_EQ(after["config"], tuned["config"]);
  EXPECT_EQ(after["tuned_by_first_call"], false);
  EXPECT_EQ(after["sources"][0]["winner"]["trials"], tuned["trials"].size());

  const CliResult near = sandbox.run({"explain", "--shape", "8x1024", "--device", "cpu"});
  EXPECT_EQ(near.exit_code, 0) << near.err;
  EXPECT_THAT(near.out, HasSubstr("nearest shape    -> "));
  EXPECT_THAT(near.out, HasSubstr(std::string("of ") + kProblem));
  EXPECT_THAT(near.out, HasSubstr("the first call tunes it"));
}

std::string write_problems(const CliSandbox& sandbox, const std::string& text) {
  const std::string path = sandbox.folder() + "/problems.txt";
  std::ofstream(path) << text;
  return path;
}

TEST(CliTune, WinnersThatAreNotKeptFail) {
  const CliSandbox sandbox;
  std::filesystem::create_directory(sandbox.cache_dir());
  std::filesystem::permissions(sandbox.cache_dir(), std::filesystem::perms::all);
  for (const std::string force : {"", "--force"}) {
    std::vector<std::string> arguments = tune_arguments();
    if (!force.empty()) arguments.push_back(force);
    const CliResult result = sandbox.run(arguments);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("the winners are not kept: " + sandbox.cache_dir() +
                                      " can be written by every user"));
    EXPECT_EQ(result.document()["problems"][0]["source"], "tuned");
  }
}

TEST(CliTune, FileSizeLimitIsLikeAFullDisk) {
  const CliSandbox sandbox;
  const CliResult result =
      sandbox.run_words({"/bin/sh", "-c", "ulimit -f 8 && exec \"$0\" \"$@\"", DORAJIT_CLI, "tune",
                         "--shape", "8x512", "--type", "f32", "--device", "cpu"});
  EXPECT_EQ(result.exit_code, 1) << "the library's own kernel runs, untuned: " << result.err;
  EXPECT_THAT(result.out, HasSubstr("winners are not kept: "));
}

TEST(CliTune, FileWithCarriageReturnsIsRead) {
  const CliSandbox sandbox;
  const std::string file =
      write_problems(sandbox, "\xef\xbb\xbf# small\r\n\r\ncompose/f32,f32,f32,f32/v1/c96/r2\r\n");
  const CliResult result = sandbox.run({"tune", "--from", file, "--device", "cpu", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.document()["problems"][0]["problem"], "compose/f32,f32,f32,f32/v1/c96/r2");

  const CliResult folder = sandbox.run({"tune", "--from", sandbox.folder(), "--device", "cpu"});
  EXPECT_EQ(folder.exit_code, 1);
  EXPECT_THAT(folder.err, HasSubstr(": Is a directory; --from takes a file of problems"));
}

TEST(CliTune, FileOfProblemsIsRead) {
  const CliSandbox sandbox;
  const std::string file = write_problems(sandbox,
                                          "# of a small model\n\n"
                                          "compose/f32,f32,f32,f32/v1/c96/r2\n"
                                          "norm_assembly/f32,f32,f32,f32/v8/c96/r0\n"
                                          "compose/f32,f32,f32,f32/v4/c96/r2\n");
  const auto tuned = sandbox.run({"tune", "--from", file, "--device", "cpu", "--json"}).document();
  ASSERT_EQ(tuned["problems"].size(), 2) << "vectors of another device's are not these";
  EXPECT_EQ(tuned["problems"][0]["problem"], "compose/f32,f32,f32,f32/v1/c96/r2");
  EXPECT_EQ(tuned["problems"][1]["problem"], "norm_assembly/f32,f32,f32,f32/v1/c96/r0");
}

TEST(CliTune, FileWithoutProblemsIsRefused) {
  const CliSandbox sandbox;
  const std::string file = write_problems(sandbox, "# none\ncompose/f32/c96\n");
  CliResult result = sandbox.run({"tune", "--from", file, "--device", "cpu"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr(file + ":2: invalid problem key \"compose/f32/c96\""));
  write_problems(sandbox, "compose/f32,f32,f32,f32/v1/c4096/r62\n");
  result = sandbox.run({"tune", "--from", file, "--device", "cpu"});
  EXPECT_THAT(result.err, HasSubstr("invalid problem key")) << "it is too large to be one";
  write_problems(sandbox, "# none\n");
  result = sandbox.run({"tune", "--from", file, "--device", "cpu"});
  EXPECT_THAT(result.err, HasSubstr("has no problem in it"));
  result = sandbox.run({"tune", "--from", "/nowhere/problems.txt", "--device", "cpu"});
  EXPECT_THAT(result.err, HasSubstr("cannot read /nowhere/problems.txt"));
}

TEST(CliExplain, NeedsAProblem) {
  const CliSandbox sandbox;
  const CliResult result = sandbox.run({"explain"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("explain needs a problem"));
}

TEST(CliTune, SecondRunNeitherCompilesNorMeasures) {
  const CliSandbox sandbox;
  const auto first = sandbox.run(tune_arguments()).document();
  const auto second = sandbox.run(tune_arguments()).document();
  EXPECT_EQ(second["statistics"]["trials"], 0);
  EXPECT_EQ(second["statistics"]["compilations"], 0);
  EXPECT_EQ(second["problems"][0]["config"], first["problems"][0]["config"]);
  EXPECT_NE(second["problems"][0]["source"], "tuned");
}

TEST(CliTune, ForceMeasuresAgain) {
  const CliSandbox sandbox;
  const auto first = sandbox.run(tune_arguments()).document();
  auto arguments = tune_arguments();
  arguments.emplace_back("--force");
  const auto second = sandbox.run(arguments).document();
  EXPECT_EQ(second["statistics"]["trials"], first["statistics"]["trials"]);
  EXPECT_EQ(second["statistics"]["compilations"], 0);
  EXPECT_EQ(second["problems"][0]["source"], "tuned");
  const auto shown = sandbox.run({"show", "--json"}).document();
  EXPECT_EQ(shown["winners"].size(), 1);
}

TEST(CliTune, SizesOfOneBucketAreOneProblem) {
  const auto document =
      CliSandbox()
          .run({"tune", "--shape", "5x512,8x512", "--shape", "7x512", "--device", "cpu", "--json"})
          .document();
  EXPECT_EQ(document["problems"].size(), 1);
}

TEST(CliTune, PolicyOffIsOverridden) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_TUNE", "off");
  EXPECT_EQ(sandbox.run(tune_arguments()).document()["problems"][0]["source"], "tuned");
}

TEST(CliTune, UnusableFolderStillTunes) {
  const CliSandbox sandbox;
  auto arguments = tune_arguments();
  arguments.insert(arguments.end(), {"--cache-dir", "/dev/null/cache"});
  const CliResult result = sandbox.run(arguments);
  EXPECT_EQ(result.exit_code, 1) << "the winner is lost";
  EXPECT_EQ(result.document()["problems"][0]["source"], "tuned");
  EXPECT_EQ(result.document()["database"]["persistent"], false);
  EXPECT_EQ(warnings_in(result.err), 1) << result.err;
}

TEST(CliTune, DamagedDatabaseIsReportedOnce) {
  const CliSandbox sandbox;
  ASSERT_EQ(sandbox.run(tune_arguments()).exit_code, 0);
  std::ofstream(sandbox.cache_dir() + "/tuning.db", std::ios::trunc) << "no database at all";
  const CliResult damaged = sandbox.run({"show", "--json"});
  EXPECT_EQ(damaged.exit_code, 0);
  EXPECT_EQ(warnings_in(damaged.err), 1) << damaged.err;
  EXPECT_EQ(damaged.document()["winners"].size(), 0);
  const CliResult repaired = sandbox.run(tune_arguments());
  EXPECT_EQ(repaired.exit_code, 0);
  EXPECT_THAT(repaired.err, IsEmpty());
  EXPECT_EQ(repaired.document()["problems"][0]["source"], "tuned");
}

TEST(CliTune, InterruptLeavesAWorkingCache) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_TUNE_SECONDS", "30");
  const pid_t process =
      sandbox.start({"tune", "--shape", "8x512,8x1024,8x2048,8x4096", "--device", "cpu"});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!std::filesystem::exists(sandbox.cache_dir() + "/artifacts") &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(process, SIGINT);
  const int exit_code = wait_for(process);
  EXPECT_TRUE(exit_code == 128 + SIGINT || exit_code == 0) << exit_code;
  sandbox.set("DORAJIT_TUNE_SECONDS", "0.2");
  const CliResult next = sandbox.run(tune_arguments());
  EXPECT_EQ(next.exit_code, 0);
  EXPECT_THAT(next.err, IsEmpty());
}

TEST(CliShow, EmptyCacheHasNoWinners) {
  const CliSandbox sandbox;
  const CliResult result = sandbox.run({"show"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("0 winners from 0 trials"));
}

TEST(CliDemo, SecondRunNeitherCompilesNorTunes) {
  const CliSandbox sandbox;
  const std::vector<std::string> arguments = {"demo", "--quick", "--device", "cpu", "--json"};
  const CliResult first = sandbox.run(arguments);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const auto tuned = first.document();
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

  const CliResult second = sandbox.run(arguments);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  const auto known = second.document();
  EXPECT_EQ(known["statistics"]["compilations"], 0);
  EXPECT_EQ(known["statistics"]["trials"], 0);
  EXPECT_EQ(known["all_known"], true);

  const CliResult third = sandbox.run({"demo", "--quick", "--device", "cpu", "--tokens", "1"});
  EXPECT_THAT(third.out, HasSubstr("nothing compiled, nothing tuned: all 3 winners came from " +
                                   sandbox.cache_dir()));
  EXPECT_THAT(third.err, IsEmpty()) << "no progress bar where there is no terminal";
}

}  // namespace
}  // namespace dorajit::test
