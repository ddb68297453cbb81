// prewarm of the config spaces of operations, without sizes
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kUnavailable = 3;

std::vector<std::string> native_cpu() {
  return {"prewarm", "--arch",  "native-cpu",         "--op",
          "compose", "--types", "bf16,bf16,f32,bf16", "--json"};
}

// A description in the sandbox's folder.
std::string scale_kernel(const CliSandbox& sandbox, std::string_view body = "",
                         std::string_view fields = "") {
  std::string file = sandbox.folder() + "/scale.json";
  std::ofstream(file) << "{" << fields << R"json(
    "name": "scale", "entry": "scale<BLOCK>", "grid": "ceil_div(n, BLOCK)", "block": "BLOCK",
    "source": "template <int BLOCK> __global__ void scale(const T* x, T* out, long long n) {)json"
                      << body << R"json(}",
    "arguments": [["x", "in", "T[n]"], ["out", "out", "T[n]"], ["n", "int64"]],
    "types": {"T": ["float32", "bfloat16"]}, "parameters": {"BLOCK": [64, 128, 256]},
    "default": {"BLOCK": 256}, "key": ["T", "bucket(n)"]})json";
  return file;
}

TEST(CliPrewarmSpaces, EveryConfigOfAnOwnKernelIsCompiled) {
  const CliSandbox sandbox;
  const std::vector<std::string> arguments = {
      "prewarm", "--arch",   "sm_90",  "--kernel", scale_kernel(sandbox),
      "--with",  "n=64x100", "--type", "f32",      "--json"};
  const CliResult first = sandbox.run(arguments);
  if (first.exit_code == kUnavailable) {
    GTEST_SKIP() << first.document()["error"]["message"].get<std::string>();
  }
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.document()["summary"]["artifacts"], 3 + 1) << "and the comparison of outputs";
  EXPECT_EQ(first.document()["summary"]["compiled"], 3 + 1);
  EXPECT_EQ(sandbox.run(arguments).document()["summary"]["compiled"], 0);
}

TEST(CliPrewarmSpaces, ErrorOfEveryConfigAndArchitectureIsPrintedOnce) {
  const CliSandbox sandbox;
  const CliResult failed =
      sandbox.run({"prewarm", "--arch", "sm_80,sm_90", "--kernel",
                   scale_kernel(sandbox, "undefined(BLOCK);"), "--with", "n=64", "--type", "f32"});
  if (failed.exit_code == kUnavailable) GTEST_SKIP() << failed.err;
  EXPECT_EQ(failed.exit_code, kFailed);
  const std::string error = "scale.cu(1): error: identifier \"undefined\" is undefined";
  // In the message, and in the log.
  const std::size_t first = failed.err.find(error);
  const std::size_t second = failed.err.find(error, first + 1);
  ASSERT_NE(second, std::string::npos) << failed.err;
  EXPECT_EQ(failed.err.find(error, second + 1), std::string::npos) << failed.err;
  EXPECT_THAT(failed.err, HasSubstr("dorajit: the same error 5 more times\n"));
}

TEST(CliPrewarmSpaces, DefaultThatDoesNotFitIsRefused) {
  const CliSandbox sandbox;
  const std::string file = scale_kernel(sandbox, "", "\"constraint\": \"n > BLOCK\",");
  const std::vector<std::string> arguments = {"prewarm", "--arch", "sm_90",  "--kernel", file,
                                              "--with",  "n=128",  "--type", "f32"};
  const CliResult refused = sandbox.run(arguments);
  if (refused.exit_code == kUnavailable) GTEST_SKIP() << refused.err;
  EXPECT_EQ(refused.exit_code, kUsage);
  EXPECT_THAT(refused.err, HasSubstr("the default config BLOCK=256 does not fit it, so that no "
                                     "call of these sizes is served: its constraint \"n > BLOCK\" "
                                     "does not hold, with n = 128, BLOCK = 256"));
}

TEST(CliPrewarmSpaces, OwnKernelNeedsAProblemAndAGpuArchitecture) {
  const CliSandbox sandbox;
  const std::string file = scale_kernel(sandbox);
  const CliResult without = sandbox.run({"prewarm", "--arch", "sm_90", "--kernel", file});
  EXPECT_EQ(without.exit_code, kUsage) << without.err;
  EXPECT_THAT(without.err, HasSubstr("needs a problem: --with n=SIZE"));
  const CliResult on_cpu =
      sandbox.run({"prewarm", "--arch", "native-cpu", "--kernel", file, "--with", "n=64"});
  EXPECT_NE(on_cpu.exit_code, 0);
  EXPECT_THAT(on_cpu.err, HasSubstr("own kernels run on CUDA devices only"));
}

TEST(CliPrewarmSpaces, CudaArchitecturesNeedNoGpuAndDoNotSpill) {
  const CliSandbox sandbox;
  const std::vector<std::string> arguments = {
      "prewarm", "--arch",  "sm_80,sm_90,sm_120", "--op",
      "compose", "--types", "bf16,bf16,f32,bf16", "--refuse-spills",
      "--json"};
  const CliResult first = sandbox.run(arguments);
  if (first.exit_code == kUnavailable) {
    GTEST_SKIP() << first.document()["error"]["message"].get<std::string>();
  }
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const auto summary = first.document()["summary"];
  EXPECT_EQ(summary["compiled"], summary["artifacts"]);
  EXPECT_EQ(summary["failed"], 0);
  EXPECT_EQ(summary["spilling"], 0);
  for (const auto& artifact : first.document()["artifacts"]) {
    EXPECT_EQ(artifact["form"], "cubin");
    EXPECT_GT(artifact["registers"], 0) << artifact;
  }
  const auto again = sandbox.run(arguments).document()["summary"];
  EXPECT_EQ(again["compiled"], 0);
  EXPECT_EQ(again["from_cache"], summary["artifacts"]);
}

TEST(CliPrewarmSpaces, ArchitectureThatNvrtcHasDroppedIsUnavailable) {
  const CliResult result = CliSandbox().run({"prewarm", "--arch", "sm_20", "--op", "compose"});
  EXPECT_EQ(result.exit_code, kUnavailable) << result.err;
}

TEST(CliPrewarmSpaces, WithoutNvrtcSaysWhatToInstall) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_NVRTC", "/nowhere");
  const CliResult result = sandbox.run({"prewarm", "--arch", "sm_90", "--op", "compose"});
  EXPECT_EQ(result.exit_code, kUnavailable);
  EXPECT_THAT(result.err, HasSubstr("pip install nvidia-cuda-nvrtc"));
}

TEST(CliPrewarmSpaces, SpaceOfTheCpu) {
  const CliSandbox sandbox;
  const CliResult result = sandbox.run(native_cpu());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto summary = result.document()["summary"];
  EXPECT_GT(summary["compiled"], 0);
  EXPECT_EQ(summary["compiled"], summary["artifacts"]);

  const auto tuned =
      sandbox.run({"tune", "--shape", "8x512", "--device", "cpu", "--json"}).document();
  EXPECT_EQ(tuned["statistics"]["compilations"], 0) << "what was compiled ahead is found";
}

TEST(CliPrewarmSpaces, KernelsThatAreNotKeptFail) {
  CliSandbox sandbox;
  std::vector<std::string> compile = native_cpu();
  compile.insert(compile.end(), {"--jobs", "1"});
  sandbox.set("DORAJIT_CACHE_MAX_BYTES", "100");
  const CliResult small = sandbox.run(compile);
  EXPECT_EQ(small.exit_code, kFailed);
  EXPECT_THAT(small.err, HasSubstr("set DORAJIT_CACHE_MAX_BYTES to more"));
  const auto summary = small.document()["summary"];
  EXPECT_EQ(summary["not_kept"], summary["artifacts"].get<int>() - 1) << "the newest always stays";

  sandbox.set("DORAJIT_CACHE_MAX_BYTES", "");
  sandbox.set("LD_PRELOAD", DORAJIT_DISK_TROUBLE);
  sandbox.set("DISK_TROUBLE", "full");
  sandbox.set("DISK_TROUBLE_FOLDER", sandbox.cache_dir());
  sandbox.set("DISK_TROUBLE_STEP", "1");
  const CliResult full = sandbox.run(compile);
  EXPECT_EQ(full.exit_code, kFailed);
  EXPECT_GT(full.document()["summary"]["not_kept"], 0);
  EXPECT_THAT(full.err, HasSubstr("free some space there"));

  sandbox.set("DORAJIT_CACHE_DIR", "/dev/null/cache");
  const CliResult nowhere = sandbox.run(compile);
  EXPECT_EQ(nowhere.exit_code, kFailed);
  EXPECT_THAT(nowhere.err, HasSubstr("there is no cache folder to keep the kernels in"));
}

TEST(CliPrewarmSpaces, WithoutAHostCompilerTheCpuIsUnavailable) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_CXX", "none");
  const CliResult result = sandbox.run(native_cpu());
  EXPECT_EQ(result.exit_code, kUnavailable);
  EXPECT_EQ(result.document()["error"]["code"], "NO_COMPILER");
}

TEST(CliPrewarmSpaces, ResourcesAndAlignmentsAreListed) {
  const CliSandbox sandbox;
  const std::vector<std::string> command = {"prewarm", "--arch",  "native-cpu",     "--op",
                                            "compose", "--types", "f32,f32,f32,f32"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = command;
    words.insert(words.end(), more.begin(), more.end());
    return sandbox.run(words);
  };
  EXPECT_THAT(with({"--resources"}).out, HasSubstr("compose/f32,f32,f32,f32  b"));
  EXPECT_THAT(with({}).out, testing::Not(HasSubstr("compose/f32,f32,f32,f32  b")));
  const auto slim = with({"--json"}).document();
  EXPECT_EQ(slim["artifacts"].size(), slim["summary"]["artifacts"]);
  EXPECT_EQ(slim["targets"][0]["problems"], 0);
  EXPECT_GT(with({"--space", "comprehensive", "--configs", "9", "--json"})
                .document()["summary"]["artifacts"],
            slim["summary"]["artifacts"]);
  EXPECT_EQ(with({"--configs", "1", "--json"}).document()["summary"]["artifacts"], 1);
  const CliResult listed = with({"--list"});
  EXPECT_EQ(listed.exit_code, 2);
  EXPECT_THAT(listed.err, HasSubstr("prewarm --list needs problems"));
}

TEST(CliPrewarmSpaces, AllAlignmentsAddUnalignedProblems) {
  const CliResult result =
      CliSandbox().run({"prewarm", "--list", "--arch", "sm_90", "--op", "compose", "--shape",
                        "8x512", "--types", "bf16,bf16,f32,bf16", "--all-alignments"});
  EXPECT_EQ(result.out,
            "compose/bf16,bf16,f32,bf16/v8/c512/r3\ncompose/bf16,bf16,f32,bf16/v1/c512/r3\n");
}

}  // namespace
}  // namespace dorajit::test
