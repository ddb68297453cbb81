// prewarm of the config spaces of operations, without sizes
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

const Words kSpace = "prewarm --arch native-cpu --op compose --types bf16,bf16,f32,bf16";
const Words kProblems =
    "prewarm --arch native-cpu --shape 2x64 --op compose,norm_assembly --type f32 --configs 1";

// A description in the sandbox's folder.
std::string scale_kernel(const CliSandbox& sandbox, const std::string& body = "",
                         const std::string& fields = "") {
  return sandbox.write("scale.json", "{" + fields + R"json(
    "name": "scale", "entry": "scale<BLOCK>", "grid": "ceil_div(n, BLOCK)", "block": "BLOCK",
    "source": "template <int BLOCK> __global__ void scale(const T* x, T* out, long long n) {)json" +
                                         body + R"json(}",
    "arguments": [["x", "in", "T[n]"], ["out", "out", "T[n]"], ["n", "int64"]],
    "types": {"T": ["float32", "bfloat16"]}, "parameters": {"BLOCK": [64, 128, 256]},
    "default": {"BLOCK": 256}, "key": ["T", "bucket(n)"]})json");
}

using CliPrewarmSpaces = CliTest;

TEST_F(CliPrewarmSpaces, EveryConfigOfAnOwnKernelIsCompiled) {
  const Words arguments = {"prewarm", "--arch",   "sm_90",  "--kernel", scale_kernel(sandbox_),
                           "--with",  "n=64x100", "--type", "f32",      "--json"};
  const CliResult first = sandbox_.run(arguments);
  if (first.exit_code == kUnavailable) {
    GTEST_SKIP() << first.document()["error"]["message"].get<std::string>();
  }
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.document(), has({{"/summary/artifacts", 3 + 1}, {"/summary/compiled", 3 + 1}}));
  EXPECT_EQ(sandbox_.json(arguments)["summary"]["compiled"], 0);
}

TEST_F(CliPrewarmSpaces, ErrorOfEveryConfigAndArchitectureIsPrintedOnce) {
  const CliResult failed = sandbox_.run({"prewarm", "--arch", "sm_80,sm_90", "--kernel",
                                         scale_kernel(sandbox_, "undefined(BLOCK);"), "--with",
                                         "n=64", "--type", "f32"});
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

TEST_F(CliPrewarmSpaces, DefaultThatDoesNotFitIsRefused) {
  const std::string file = scale_kernel(sandbox_, "", "\"constraint\": \"n > BLOCK\",");
  const Words arguments = {"prewarm", "--arch", "sm_90",  "--kernel", file,
                           "--with",  "n=128",  "--type", "f32"};
  const CliResult refused = sandbox_.run(arguments);
  if (refused.exit_code == kUnavailable) GTEST_SKIP() << refused.err;
  EXPECT_EQ(refused.exit_code, kUsage);
  EXPECT_THAT(refused.err, HasSubstr("the default config BLOCK=256 does not fit its largest sizes, "
                                     "calls of which are refused: its constraint \"n > BLOCK\" "
                                     "does not hold, with n = 128, BLOCK = 256"));
}

TEST_F(CliPrewarmSpaces, DimensionThatIsNegativeInEverySizeIsRefused) {
  const std::string file = sandbox_.write("cut.json", R"json({
    "name": "cut", "entry": "cut", "grid": "1", "block": "1", "key": ["bucket(n)"],
    "source": "__global__ void cut(const float* x, float* out, long long n) {}",
    "arguments": [["x", "in", "float32[n - 5000]"], ["out", "out", "float32[n]"], ["n", "int64"]]})json");
  const CliResult refused =
      sandbox_.run({"prewarm", "--arch", "sm_90", "--kernel", file, "--with", "n=4096"});
  if (refused.exit_code == kUnavailable) GTEST_SKIP() << refused.err;
  EXPECT_EQ(refused.exit_code, kUsage);
  EXPECT_THAT(refused.err, HasSubstr("are refused: its `n - 5000` is -904"));
}

TEST_F(CliPrewarmSpaces, MultiprocessorsWithoutAGpuAreThoseOfAUsualOne) {
  const std::string fields = "\"constraint\": \"multiprocessors == 132\",";
  const std::string file = scale_kernel(sandbox_, "", fields);
  const CliResult done = sandbox_.run({"prewarm", "--arch", "sm_90", "--kernel", file, "--with",
                                       "n=128", "--type", "f32", "--configs", "1"});
  if (done.exit_code == kUnavailable) GTEST_SKIP() << done.err;
  EXPECT_EQ(done.exit_code, 0) << done.err;
}

TEST_F(CliPrewarmSpaces, OwnKernelNeedsAProblemAndAGpuArchitecture) {
  const std::string file = scale_kernel(sandbox_);
  EXPECT_THAT(sandbox_.run({"prewarm", "--arch", "sm_90", "--kernel", file}),
              fails(kUsage, "needs a problem: --with n=SIZE"));
  const CliResult on_cpu =
      sandbox_.run({"prewarm", "--arch", "native-cpu", "--kernel", file, "--with", "n=64"});
  EXPECT_NE(on_cpu.exit_code, 0);
  EXPECT_THAT(on_cpu.err, HasSubstr("own kernels run on CUDA devices only"));
}

TEST_F(CliPrewarmSpaces, CudaArchitecturesNeedNoGpuAndDoNotSpill) {
  const Words arguments =
      "prewarm --arch sm_80,sm_90,sm_120 --op compose --types bf16,bf16,f32,bf16 --refuse-spills "
      "--json";
  const CliResult first = sandbox_.run(arguments);
  if (first.exit_code == kUnavailable) {
    GTEST_SKIP() << first.document()["error"]["message"].get<std::string>();
  }
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const auto summary = first.document()["summary"];
  EXPECT_THAT(summary,
              has({{"/compiled", summary["artifacts"]}, {"/failed", 0}, {"/spilling", 0}}));
  for (const auto& artifact : first.document()["artifacts"]) {
    EXPECT_EQ(artifact["form"], "cubin");
    EXPECT_GT(artifact["registers"], 0) << artifact;
  }
  const auto again = sandbox_.json(arguments)["summary"];
  EXPECT_THAT(again, has({{"/compiled", 0}, {"/from_cache", summary["artifacts"]}}));
}

TEST_F(CliPrewarmSpaces, WithoutNvrtcSaysWhatToInstall) {
  sandbox_.set("DORAJIT_NVRTC", "/nowhere");
  EXPECT_THAT(sandbox_.run("prewarm --arch sm_90 --op compose"),
              fails(kUnavailable, "pip install nvidia-cuda-nvrtc"));
}

TEST_F(CliPrewarmSpaces, SpaceOfTheCpu) {
  const auto result = sandbox_.json(kSpace);
  const auto& summary = result["summary"];
  EXPECT_GT(summary["compiled"], 0);
  EXPECT_EQ(summary["compiled"], summary["artifacts"]);

  const auto tuned = sandbox_.json("tune --shape 8x512 --device cpu");
  EXPECT_EQ(tuned["statistics"]["compilations"], 0) << "what was compiled ahead is found";
}

TEST_F(CliPrewarmSpaces, KernelsThatAreNotKeptFail) {
  for (const Words& one : {kSpace, kProblems}) {
    CliSandbox sandbox;
    const Words compile = with(one, "--jobs 1 --json");
    sandbox.set("DORAJIT_CACHE_MAX_BYTES", "100");
    const CliResult small = sandbox.run(compile);
    EXPECT_THAT(small, fails(kFailed, "set DORAJIT_CACHE_MAX_BYTES to more"));
    const auto summary = small.document()["summary"];
    ASSERT_GT(summary["artifacts"], 1);
    EXPECT_EQ(summary["not_kept"], summary["artifacts"].get<int>() - 1) << "the newest stays";
    EXPECT_EQ(summary["failed"], 0);

    sandbox.set("DORAJIT_CACHE_MAX_BYTES", "");
    sandbox.bring_disk_trouble("full", sandbox.cache_dir(), 1);
    const CliResult full = sandbox.run(compile);
    EXPECT_THAT(full, fails(kFailed, "free some space there"));
    EXPECT_GT(full.document()["summary"]["not_kept"], 0);

    sandbox.bring_disk_trouble("");
    sandbox.succeed(compile);
    EXPECT_THAT(sandbox.run(with(compile, "--cache-dir /dev/null/cache")),
                fails(kFailed, "there is no cache folder to keep the kernels in"));
  }
}

TEST_F(CliPrewarmSpaces, WithoutAHostCompilerTheCpuIsUnavailable) {
  sandbox_.set("DORAJIT_CXX", "none");
  for (const Words& compile : {kSpace, kProblems}) {
    const CliResult result = sandbox_.run(with(compile, "--json"));
    EXPECT_EQ(result.exit_code, kUnavailable);
    EXPECT_EQ(result.document()["error"]["code"], "NO_COMPILER");
  }
}

TEST_F(CliPrewarmSpaces, ResourcesAndAlignmentsAreListed) {
  const Words command = "prewarm --arch native-cpu --op compose --types f32,f32,f32,f32";
  EXPECT_THAT(sandbox_.run(with(command, "--resources")).out,
              HasSubstr("compose/f32,f32,f32,f32  b"));
  EXPECT_THAT(sandbox_.run(command).out, testing::Not(HasSubstr("compose/f32,f32,f32,f32  b")));
  const auto slim = sandbox_.json(command);
  EXPECT_EQ(slim["artifacts"].size(), slim["summary"]["artifacts"]);
  EXPECT_EQ(slim["targets"][0]["problems"], 0);
  EXPECT_GT(
      sandbox_.json(with(command, "--space comprehensive --configs 9"))["summary"]["artifacts"],
      slim["summary"]["artifacts"]);
  EXPECT_EQ(sandbox_.json(with(command, "--configs 1"))["summary"]["artifacts"], 1);
  EXPECT_THAT(sandbox_.run(with(command, "--list")), fails(2, "prewarm --list needs problems"));
}

TEST_F(CliPrewarmSpaces, AllAlignmentsAddUnalignedProblems) {
  const CliResult result = sandbox_.run(
      "prewarm --list --arch sm_90 --op compose --shape 8x512 --types bf16,bf16,f32,bf16 "
      "--all-alignments");
  EXPECT_EQ(result.out,
            "compose/bf16,bf16,f32,bf16/v8/c512/r3\ncompose/bf16,bf16,f32,bf16/v1/c512/r3\n");
}

}  // namespace
}  // namespace dorajit::test
