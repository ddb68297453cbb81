// prewarm
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

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

constexpr int kProcessors = 132;

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

using CliPrewarm = CliTest;

TEST_F(CliPrewarm, ProcessesOnTheCpuCompileNothing) {
  const Words prewarm = "prewarm --arch native-cpu --shape 8x512,2x64 --op compose --type f32";
  const auto first = sandbox_.json(prewarm);
  const auto& summary = first["summary"];
  EXPECT_GT(summary["compiled"], 1);
  EXPECT_EQ(summary["compiled"], summary["artifacts"]);
  EXPECT_EQ(summary["tuned"], 0) << "the CPU that builds an image need not be the one that runs it";
  EXPECT_THAT(first, has({{"/targets/0/arch", "native-cpu"}, {"/targets/0/problems", 2}}));

  const auto again = sandbox_.json(prewarm)["summary"];
  EXPECT_THAT(again, has({{"/compiled", 0}, {"/from_cache", summary["artifacts"]}}));

  // An engine that runs the default, and one that tunes.
  Settings settings;
  settings.cache_dir = sandbox_.cache_dir();
  settings.tune_policy = TunePolicy::kOff;
  const auto parts = autotune::make_engine(settings);
  const kernels::Variant variant{.operation = &kernels::operation("compose")};
  ASSERT_TRUE(parts.engine->prepare(
      launch::make_problem(variant, kernels::DeviceKind::kCpu, {8, 512}), {}));
  EXPECT_EQ(parts.engine->statistics().compilations, 0);
  EXPECT_EQ(parts.engine->statistics().artifact_hits, 1);
  const auto tuned = sandbox_.json("tune --shape 2x64 --type f32 --device cpu");
  EXPECT_THAT(tuned, has({{"/statistics/compilations", 0}, {"/problems/0/source", "tuned"}}));
}

TEST_F(CliPrewarm, NamedDeviceIsTuned) {
  const Words prewarm = "prewarm --device cpu --shape 2x64 --op compose --type f32 --seconds 0.2";
  const auto first = sandbox_.json(prewarm);
  ASSERT_EQ(first["tuned"].size(), 1);
  EXPECT_THAT(first, has({{"/tuned/0/source", "tuned"},
                          {"/tuned/0/problem", "compose/f32,f32,f32,f32/v1/c64/r1"}}));
  EXPECT_GT(first["statistics"]["trials"], 1);
  const auto again = sandbox_.json(prewarm);
  EXPECT_THAT(again, has({{"/statistics/compilations", 0},
                          {"/statistics/trials", 0},
                          {"/tuned/0/source", "user database"}}));

  EXPECT_EQ(sandbox_.json(with(prewarm, {"--compile-only"}))["tuned"].size(), 0);
}

TEST_F(CliPrewarm, RecordedFileIsReplayed) {
  const std::string file = sandbox_.write("problems.txt",
                                          "compose/f32,f32,f32,f32/v1/c96/r2\n"
                                          "compose/f32,f32,f32,f32/v1/c96/r2\n"
                                          "compose/f32,f32,f32,f32/v1/c32/r2\n");
  const auto result =
      sandbox_.json({"prewarm", "--arch", "native-cpu", "--from", file, "--configs", "1"});
  EXPECT_EQ(result["targets"][0]["problems"], 2);
  EXPECT_EQ(result["summary"]["compiled"], 1) << "the default, which both share";
  EXPECT_EQ(sandbox_.run("prewarm --arch native-cpu --from /nowhere").exit_code, kFailed);
}

TEST_F(CliPrewarm, WinnersThatAreNotKeptFail) {
  // What stands in the way of the database, and of nothing else.
  std::filesystem::create_directories(sandbox_.database());
  EXPECT_THAT(
      sandbox_.run(
          "prewarm --device cpu --shape 2x64 --op compose --type f32 --configs 2 --seconds 0.1"),
      fails(kFailed, "the winners are not kept: "));
}

TEST_F(CliPrewarm, NonexistentArchitectureIsRefusedWithoutNvrtc) {
  sandbox_.set("DORAJIT_NVRTC", "/nowhere");
  for (const char* command :
       {"prewarm --arch sm_42 --shape 2x64", "prewarm --arch native-cpu,sm_42 --shape 2x64 --list",
        "prewarm --arch sm_42 --op compose"}) {
    EXPECT_THAT(sandbox_.run(command),
                fails(kUsage, "--arch sm_42: there is no such architecture; examples"))
        << command;
  }
}

// With NVRTC, without a GPU.
class CliPrewarmCuda : public testing::Test {
 protected:
  void SetUp() override {
    const CliResult probe = sandbox_.run(
        "prewarm --arch sm_999 --shape 2x64 --op compose --type f32 --configs 1 --json");
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
  for (const std::string what : {" --shape 2x64", " --op compose"}) {
    EXPECT_EQ(sandbox_.run(("prewarm --arch sm_20" + what).c_str()).exit_code, kUnavailable);
  }
  for (const std::string arch : {"sm_42", "sm_81"}) {
    EXPECT_THAT(sandbox_.run({"prewarm", "--arch", arch, "--shape", "2x64"}),
                fails(kUsage, "--arch " + arch + ": there is no such architecture; NVRTC "));
  }
}

TEST_F(CliPrewarmCuda, ProcessOnSuchAGpuCompilesNothing) {
  const Words prewarm = "prewarm --arch sm_90a --shape 512x4096 --op compose --gain-type f32";
  const CliResult first = sandbox_.succeed(with(prewarm, {"--json"}));
  EXPECT_THAT(first.err, HasSubstr("sm_90a: kernels are compiled for sm_90,"));
  EXPECT_EQ(first.document()["targets"][0]["arch"], "sm_90");
  EXPECT_GT(first.document()["summary"]["compiled"], 1);
  EXPECT_EQ(sandbox_.json(prewarm)["summary"]["compiled"], 0);

  const auto problem = launch::parse_problem("compose/bf16,bf16,f32,bf16/v8/c4096/r9");
  ASSERT_TRUE(problem);
  EXPECT_EQ(compiled_by_a_process(*problem, 9, 0), 0);
}

// Winners that the databases have for a device of the architecture, and for the likest of others.
TEST_F(CliPrewarmCuda, WinnersOfTheFallbackChainAreCompiled) {
  const std::string problem = "compose/bf16,bf16,f32,bf16/v8/c512/r11";
  const std::string trials = sandbox_.write("h200.jsonl", shipped_trials(problem));
  const std::string file = sandbox_.write("problems.txt", problem + "\n");
  const Words prewarm = {"prewarm",   "--arch", "sm_90,sm_100", "--from", file,
                         "--configs", "1",      "--json"};
  const auto without = sandbox_.json(prewarm);
  sandbox_.succeed({"import", trials, "--partial"});
  const auto winner = sandbox_.json("show")["winners"][0];
  ASSERT_NE(winner["config"], winner["default_config"]) << "else this shows nothing";
  const auto with = sandbox_.json(prewarm);
  for (const std::size_t target : {0, 1}) {
    EXPECT_EQ(without["targets"][target]["compiled"], 2) << "with the comparison of outputs";
    EXPECT_EQ(with["targets"][target]["compiled"], 1);
    EXPECT_EQ(with["targets"][target]["from_cache"], 2);
  }
}

TEST_F(CliPrewarmCuda, OneConfigIsTheDefaultOfEachVariant) {
  const auto result = sandbox_.json(
      "prewarm --arch sm_90,sm_90a --shape 1x768,64x768,64x2304 --configs 1 --gain-type f32 --op "
      "compose,norm_assembly");
  EXPECT_EQ(result["targets"].size(), 1) << "both are one";
  EXPECT_EQ(result["targets"][0]["problems"], 3 * 2);
  EXPECT_EQ(result["summary"]["compiled"], 2 + 1) << "and the comparison of outputs";
}

}  // namespace
}  // namespace dorajit::test
