// prewarm
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "autotune/engine_factory.h"
#include "cache/artifacts/artifact_files.h"
#include "kernel_templates/spaces.h"
#include "runtime/launch/kernel_cache.h"
#include "runtime/launch/problem.h"
#include "tests/apps/cli/cli_sandbox.h"
#include "tests/fakes/fake_device.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kUnavailable = 3;
constexpr int kProcessors = 132;

std::string write(const CliSandbox& sandbox, const std::string& name, const std::string& text) {
  const std::string path = sandbox.folder() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

// What ships of a problem on an H200.
std::string shipped_trials(const std::string& problem) {
  std::ifstream file(DORAJIT_SOURCE_DIR "/databases/nvidia_h200.jsonl");
  std::string text;
  std::getline(file, text);
  text += '\n';
  for (std::string line; std::getline(file, line);) {
    if (line.contains("\"problem\":\"" + problem + "\"")) text += line + "\n";
  }
  return text;
}

TEST(CliPrewarm, ProcessesOnTheCpuCompileNothing) {
  const CliSandbox sandbox;
  const std::vector<std::string> prewarm = {"prewarm",    "--arch", "native-cpu", "--shape",
                                            "8x512,2x64", "--op",   "compose",    "--type",
                                            "f32",        "--json"};
  const CliResult first = sandbox.run(prewarm);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const auto summary = first.document()["summary"];
  EXPECT_GT(summary["compiled"], 1);
  EXPECT_EQ(summary["compiled"], summary["artifacts"]);
  EXPECT_EQ(summary["tuned"], 0) << "the CPU that builds an image need not be the one that runs it";
  EXPECT_EQ(first.document()["targets"][0]["arch"], "native-cpu");
  EXPECT_EQ(first.document()["targets"][0]["problems"], 2);

  const auto again = sandbox.run(prewarm).document()["summary"];
  EXPECT_EQ(again["compiled"], 0);
  EXPECT_EQ(again["from_cache"], summary["artifacts"]);

  // An engine that runs the default, and one that tunes.
  Settings settings;
  settings.cache_dir = sandbox.cache_dir();
  settings.tune_policy = TunePolicy::kOff;
  const auto parts = autotune::make_engine(settings);
  const kernels::Variant variant{.operation = &kernels::operation("compose")};
  ASSERT_TRUE(parts.engine->prepare(
      launch::make_problem(variant, kernels::DeviceKind::kCpu, {8, 512}), {}));
  EXPECT_EQ(parts.engine->statistics().compilations, 0);
  EXPECT_EQ(parts.engine->statistics().artifact_hits, 1);
  const auto tuned =
      sandbox.run({"tune", "--shape", "2x64", "--type", "f32", "--device", "cpu", "--json"})
          .document();
  EXPECT_EQ(tuned["statistics"]["compilations"], 0);
  EXPECT_EQ(tuned["problems"][0]["source"], "tuned");
}

TEST(CliPrewarm, NamedDeviceIsTuned) {
  const CliSandbox sandbox;
  const std::vector<std::string> prewarm = {"prewarm", "--device",  "cpu",     "--shape",
                                            "2x64",    "--op",      "compose", "--type",
                                            "f32",     "--seconds", "0.2",     "--json"};
  const CliResult first = sandbox.run(prewarm);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  ASSERT_EQ(first.document()["tuned"].size(), 1);
  EXPECT_EQ(first.document()["tuned"][0]["source"], "tuned");
  EXPECT_EQ(first.document()["tuned"][0]["problem"], "compose/f32,f32,f32,f32/v1/c64/r1");
  EXPECT_GT(first.document()["statistics"]["trials"], 1);
  const auto again = sandbox.run(prewarm).document();
  EXPECT_EQ(again["statistics"]["compilations"], 0);
  EXPECT_EQ(again["statistics"]["trials"], 0);
  EXPECT_EQ(again["tuned"][0]["source"], "user database");

  auto compile_only = prewarm;
  compile_only.emplace_back("--compile-only");
  EXPECT_EQ(sandbox.run(compile_only).document()["tuned"].size(), 0);
}

TEST(CliPrewarm, RecordedFileIsReplayed) {
  const CliSandbox sandbox;
  const std::string file = write(sandbox, "problems.txt",
                                 "compose/f32,f32,f32,f32/v1/c96/r2\n"
                                 "compose/f32,f32,f32,f32/v1/c96/r2\n"
                                 "compose/f32,f32,f32,f32/v1/c32/r2\n");
  const CliResult result =
      sandbox.run({"prewarm", "--arch", "native-cpu", "--from", file, "--configs", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.document()["targets"][0]["problems"], 2);
  EXPECT_EQ(result.document()["summary"]["compiled"], 1) << "the default, which both share";
  EXPECT_EQ(sandbox.run({"prewarm", "--arch", "native-cpu", "--from", "/nowhere"}).exit_code,
            kFailed);
}

TEST(CliPrewarm, WithoutACacheFolderNothingIsCompiled) {
  const CliSandbox sandbox;
  const CliResult result = sandbox.run(
      {"prewarm", "--arch", "native-cpu", "--shape", "2x64", "--cache-dir", "/dev/null/cache"});
  EXPECT_EQ(result.exit_code, kFailed);
  EXPECT_THAT(result.err, HasSubstr("there is no cache folder to keep the kernels in"));
}

TEST(CliPrewarm, TooSmallCacheFails) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_CACHE_MAX_BYTES", "100");
  const std::vector<std::string> prewarm = {
      "prewarm", "--arch", "native-cpu", "--shape", "2x64",   "--op", "compose,norm_assembly",
      "--type",  "f32",    "--configs",  "1",       "--jobs", "1",    "--json"};
  const CliResult result = sandbox.run(prewarm);
  EXPECT_EQ(result.exit_code, kFailed);
  EXPECT_THAT(result.err, HasSubstr("set DORAJIT_CACHE_MAX_BYTES to more"));
  const auto summary = result.document()["summary"];
  ASSERT_GT(summary["artifacts"], 1);
  EXPECT_EQ(summary["not_kept"], summary["artifacts"].get<int>() - 1) << "the newest always stays";
  EXPECT_EQ(summary["failed"], 0);
  sandbox.set("DORAJIT_CACHE_MAX_BYTES", "");
  EXPECT_EQ(sandbox.run(prewarm).exit_code, 0);
}

TEST(CliPrewarm, WinnersThatAreNotKeptFail) {
  const CliSandbox sandbox;
  // What stands in the way of the database, and of nothing else.
  std::filesystem::create_directories(sandbox.cache_dir() + "/tuning.db");
  const CliResult result =
      sandbox.run({"prewarm", "--device", "cpu", "--shape", "2x64", "--op", "compose", "--type",
                   "f32", "--configs", "2", "--seconds", "0.1"});
  EXPECT_EQ(result.exit_code, kFailed);
  EXPECT_THAT(result.err, HasSubstr("the winners are not kept: "));
}

TEST(CliPrewarm, WithoutAHostCompilerTheCpuIsUnavailable) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_CXX", "none");
  EXPECT_EQ(sandbox.run({"prewarm", "--arch", "native-cpu", "--shape", "2x64"}).exit_code,
            kUnavailable);
}

TEST(CliPrewarm, UnknownArchitectureIsRefused) {
  std::vector<std::string> command = {"prewarm", "--arch", "pentium", "--shape", "2x64"};
  for (const bool lists : {false, true}) {
    if (lists) command.emplace_back("--list");
    const CliResult result = CliSandbox().run(command);
    EXPECT_EQ(result.exit_code, kUsage) << lists;
    EXPECT_THAT(result.err, HasSubstr("--arch pentium: unknown architecture"));
  }
}

TEST(CliPrewarm, NonexistentArchitectureIsRefusedWithoutNvrtc) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_NVRTC", "/nowhere");
  const std::vector<std::vector<std::string>> commands = {
      {"prewarm", "--arch", "sm_42", "--shape", "2x64"},
      {"prewarm", "--arch", "native-cpu,sm_42", "--shape", "2x64", "--list"},
      {"prewarm", "--arch", "sm_42", "--op", "compose"}};
  for (const std::vector<std::string>& command : commands) {
    const CliResult never = sandbox.run(command);
    EXPECT_EQ(never.exit_code, kUsage) << command[0];
    EXPECT_THAT(never.err, HasSubstr("--arch sm_42: there is no such architecture; examples"));
  }
}

// With NVRTC, without a GPU.
class CliPrewarmCuda : public testing::Test {
 protected:
  void SetUp() override {
    const CliResult probe = sandbox_.run({"prewarm", "--arch", "sm_999", "--shape", "2x64", "--op",
                                          "compose", "--type", "f32", "--configs", "1", "--json"});
    if (probe.exit_code == kUnavailable) GTEST_SKIP() << probe.err;
    newer_ = probe;
  }

  // What a process on a GPU with that compute capability would compile for a problem's whole space.
  std::int64_t compiled_by_a_process(const launch::Problem& problem, int major, int minor) {
    tests::FakeDevice gpu(kProcessors);
    gpu.pose_as_gpu(major, minor);
    cache::ArtifactFiles artifacts(sandbox_.cache_dir(), std::uint64_t{1} << 30);
    Statistics statistics;
    const auto settings = Settings::from_environment();
    EXPECT_TRUE(settings);
    launch::KernelCache kernels(*settings, &artifacts, statistics);
    std::int64_t tried = 0;
    for (const kernels::Config& config : kernels::config_space(
             problem.variant, gpu.info().traits, problem.vector_width, kernels::SpaceKind::kSlim)) {
      (void)kernels.get(gpu, problem.variant, config);  // no CPU loads what it finds
      ++tried;
    }
    EXPECT_EQ(statistics.artifact_hits + statistics.compilations, tried);
    return statistics.compilations;
  }

  const CliSandbox sandbox_;
  CliResult newer_;
};

TEST_F(CliPrewarmCuda, NewerArchitectureThanNvrtcKnowsGetsPtx) {
  EXPECT_EQ(newer_.exit_code, 0) << newer_.err;
  EXPECT_THAT(newer_.err, HasSubstr("does not know sm_999, only sm_"));
  EXPECT_EQ(newer_.document()["artifacts"][0]["form"], "ptx");
}

TEST_F(CliPrewarmCuda, ArchitectureThatNvrtcDoesNotSupportIsRefused) {
  const CliResult dropped = sandbox_.run({"prewarm", "--arch", "sm_20", "--shape", "2x64"});
  EXPECT_EQ(dropped.exit_code, kUnavailable);
  const CliResult never = sandbox_.run({"prewarm", "--arch", "sm_42", "--shape", "2x64"});
  EXPECT_EQ(never.exit_code, kUsage);
  EXPECT_THAT(never.err, HasSubstr("--arch sm_42: there is no such architecture; NVRTC "));
  const CliResult between = sandbox_.run({"prewarm", "--arch", "sm_81", "--shape", "2x64"});
  EXPECT_EQ(between.exit_code, kUsage);
  EXPECT_THAT(between.err, HasSubstr("--arch sm_81: there is no such architecture; NVRTC "));
}

TEST_F(CliPrewarmCuda, ProcessOnSuchAGpuCompilesNothing) {
  const std::vector<std::string> prewarm = {"prewarm",  "--arch", "sm_90a",  "--shape",
                                            "512x4096", "--op",   "compose", "--gain-type",
                                            "f32",      "--json"};
  const CliResult first = sandbox_.run(prewarm);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("sm_90a: kernels are compiled for sm_90,"));
  EXPECT_EQ(first.document()["targets"][0]["arch"], "sm_90");
  EXPECT_GT(first.document()["summary"]["compiled"], 1);
  EXPECT_EQ(sandbox_.run(prewarm).document()["summary"]["compiled"], 0);

  const auto problem = launch::parse_problem("compose/bf16,bf16,f32,bf16/v8/c4096/r9");
  ASSERT_TRUE(problem);
  EXPECT_EQ(compiled_by_a_process(*problem, 9, 0), 0);
}

// Winners that the databases have for a device of the architecture, and for the likest of others.
TEST_F(CliPrewarmCuda, WinnersOfTheFallbackChainAreCompiled) {
  const std::string problem = "compose/bf16,bf16,f32,bf16/v8/c512/r11";
  const std::string trials = write(sandbox_, "h200.jsonl", shipped_trials(problem));
  const std::string file = write(sandbox_, "problems.txt", problem + "\n");
  const std::vector<std::string> prewarm = {"prewarm",   "--arch", "sm_90,sm_100", "--from", file,
                                            "--configs", "1",      "--json"};
  const auto without = sandbox_.run(prewarm).document();
  ASSERT_EQ(sandbox_.run({"import", trials, "--partial"}).exit_code, 0);
  const auto winner = sandbox_.run({"show", "--json"}).document()["winners"][0];
  ASSERT_NE(winner["config"], winner["default_config"]) << "else this shows nothing";
  const auto with = sandbox_.run(prewarm).document();
  for (const std::size_t target : {0, 1}) {
    EXPECT_EQ(without["targets"][target]["compiled"], 2) << "with the comparison of outputs";
    EXPECT_EQ(with["targets"][target]["compiled"], 1);
    EXPECT_EQ(with["targets"][target]["from_cache"], 2);
  }
}

TEST_F(CliPrewarmCuda, OneConfigIsTheDefaultOfEachVariant) {
  const CliResult result = sandbox_.run({"prewarm", "--arch", "sm_90,sm_90a", "--shape",
                                         "1x768,64x768,64x2304", "--configs", "1", "--gain-type",
                                         "f32", "--op", "compose,norm_assembly", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.document()["targets"].size(), 1) << "both are one";
  EXPECT_EQ(result.document()["targets"][0]["problems"], 3 * 2);
  EXPECT_EQ(result.document()["summary"]["compiled"], 2 + 1) << "and the comparison of outputs";
}

}  // namespace
}  // namespace dorajit::test
