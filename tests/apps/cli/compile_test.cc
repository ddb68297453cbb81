#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

constexpr int kFailed = 1;
constexpr int kUnavailable = 3;

TEST(CliCompile, CudaArchitecturesNeedNoGpuAndDoNotSpill) {
  const CliSandbox sandbox;
  const std::vector<std::string> arguments = {"compile", "--arch", "sm_80,sm_90,sm_120", "--json",
                                              "--refuse-spills"};
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

TEST(CliCompile, ArchitectureThatNvrtcHasDroppedIsUnavailable) {
  const CliResult result = CliSandbox().run({"compile", "--arch", "sm_20", "--json"});
  EXPECT_EQ(result.exit_code, kUnavailable) << result.err;
}

TEST(CliCompile, WithoutNvrtcSaysWhatToInstall) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_NVRTC", "/nowhere");
  const CliResult result = sandbox.run({"compile", "--arch", "sm_90"});
  EXPECT_EQ(result.exit_code, kUnavailable);
  EXPECT_THAT(result.err, HasSubstr("pip install nvidia-cuda-nvrtc"));
}

TEST(CliCompile, SpaceOfTheCpu) {
  const CliSandbox sandbox;
  const CliResult result = sandbox.run({"compile", "--arch", "native-cpu", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto summary = result.document()["summary"];
  EXPECT_GT(summary["compiled"], 0);
  EXPECT_EQ(summary["compiled"], summary["artifacts"]);

  const auto tuned =
      sandbox.run({"tune", "--shape", "8x512", "--device", "cpu", "--json"}).document();
  EXPECT_EQ(tuned["statistics"]["compilations"], 0) << "what was compiled ahead is found";
}

TEST(CliCompile, WhatIsNotKeptFailsAndIsSaid) {
  CliSandbox sandbox;
  const std::vector<std::string> compile = {"compile", "--arch", "native-cpu",
                                            "--jobs",  "1",      "--json"};
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
  EXPECT_THAT(nowhere.err, HasSubstr("kernels that are not kept are no use later"));
}

TEST(CliCompile, WithoutAHostCompilerTheCpuIsUnavailable) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_CXX", "none");
  const CliResult result = sandbox.run({"compile", "--arch", "native-cpu", "--json"});
  EXPECT_EQ(result.exit_code, kUnavailable);
  EXPECT_EQ(result.document()["error"]["code"], "NO_COMPILER");
}

}  // namespace
}  // namespace dorajit::test
