// Problems of own kernels by the commands that name problems, on a machine without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/apps/cli/cli_sandbox.h"
#include "tests/own_kernels/descriptions.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class CliOwnKernel : public testing::Test {
 protected:
  CliOwnKernel() {
    sandbox_.set("DORAJIT_TUNE_SECONDS", "0.05");
    std::ofstream(description_) << tests::swiglu().dump();
  }

  // A command about the problem of the kernel.
  CliResult run(Words words) {
    words.insert(words.end(), {"--kernel", description_, "--type", "f32", "--with", "n=7"});
    return sandbox_.run(words);
  }
  void tune_another_problem() { sandbox_.succeed("tune --device cpu --type f32 --shape 4x64"); }

  CliSandbox sandbox_;
  const std::string description_ = sandbox_.file("swiglu.json");
};

TEST_F(CliOwnKernel, CpuIsRefused) {
  const std::string lock = sandbox_.file("a.lock");
  const std::vector<Words> commands = {
      {"tune", "--device", "cpu"},
      {"tune", "--device", "cpu", "--force"},
      {"explain", "--device", "cpu"},
      {"freeze", "--device", "cpu", "--out", lock},
      {"pin", "--device", "cpu", "--config", "BLOCK=256-VEC=1"},
  };
  tune_another_problem();
  for (const auto& command : commands) {
    const CliResult refused = run(command);
    EXPECT_THAT(refused, fails(1, "swiglu: there is no kernel for the CPU")) << command[0];
    EXPECT_THAT(refused.err, testing::Not(HasSubstr("could not be tuned"))) << command[0];
    EXPECT_THAT(refused.out, IsEmpty()) << command[0];
  }
  EXPECT_FALSE(std::filesystem::exists(lock));
}

TEST_F(CliOwnKernel, MissingDescriptionIsNamed) {
  const std::string file =
      sandbox_.write("problems.txt", "swiglu@0123456789ab/f32,f32,f32/v8/n3\n");
  for (const char* const command : {"explain", "freeze", "show", "tune"}) {
    const CliResult refused = sandbox_.run({command, "--device", "cpu", "--from", file});
    EXPECT_NE(refused.exit_code, 0) << command;
    EXPECT_THAT(refused.err,
                HasSubstr("problems.txt:1: the own kernel swiglu@0123456789ab is not known here; "
                          "give its description by --kernel FILE.json"))
        << command;
  }
  // With it no integers are needed.
  const std::string key = run({"prewarm", "--arch", "sm_90", "--list"}).out;
  std::ofstream(file) << key;
  const CliSandbox another;
  EXPECT_THAT(another.run({"show", "--from", file}).err, HasSubstr("is not known here"));
  another.succeed({"show", "--from", file, "--kernel", description_});
  const CliResult listed = another.run(
      {"prewarm", "--arch", "sm_90", "--list", "--from", file, "--kernel", description_});
  EXPECT_EQ(listed.out, key) << listed.err;
}

TEST_F(CliOwnKernel, PrewarmedKernelIsKnown) {
  const std::string file =
      sandbox_.write("problems.txt", run({"prewarm", "--arch", "sm_90", "--list"}).out);
  const CliResult compiled = run({"prewarm", "--arch", "sm_90", "--configs", "1"});
  if (compiled.exit_code == kUnavailable) GTEST_SKIP() << compiled.err;
  EXPECT_EQ(compiled.exit_code, 0) << compiled.err;
  sandbox_.succeed({"show", "--from", file});
}

TEST_F(CliOwnKernel, StridesArePartOfTheProblem) {
  auto json = tests::swiglu();
  json["arguments"][0][2] = "T[n:stride]";
  json["arguments"].push_back({"stride", "int64"});
  std::ofstream(description_) << json.dump();
  const auto listed = [&](const char* integers) {
    return sandbox_.run({"prewarm", "--arch", "sm_90", "--list", "--kernel", description_, "--type",
                         "f32", "--with", integers});
  };
  const CliResult dense = listed("n=4096");
  EXPECT_EQ(dense.exit_code, 0) << dense.err;
  EXPECT_EQ(listed("n=4096,stride=1").out, dense.out);
  EXPECT_EQ(
      sandbox_.run({"show", "--from", sandbox_.write("list", dense.out), "--kernel", description_})
          .exit_code,
      0);
}

TEST_F(CliOwnKernel, ShowListsOnlyItsProblem) {
  tune_another_problem();
  const CliResult shown = run({"show", "--json"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_EQ(shown.document()["winners"].size(), 0U);
  EXPECT_EQ(sandbox_.json("show")["winners"].size(), 1U);
}

}  // namespace
}  // namespace dorajit::test
