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
  CliResult run(std::vector<std::string> words) {
    words.insert(words.end(), {"--kernel", description_, "--type", "f32", "--with", "n=7"});
    return sandbox_.run(words);
  }
  void tune_another_problem() {
    const CliResult tuned =
        sandbox_.run({"tune", "--device", "cpu", "--type", "f32", "--shape", "4x64"});
    ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  }

  CliSandbox sandbox_;
  const std::string description_ = sandbox_.folder() + "/swiglu.json";
};

TEST_F(CliOwnKernel, CpuIsRefused) {
  const std::string lock = sandbox_.folder() + "/a.lock";
  const std::vector<std::vector<std::string>> commands = {
      {"tune", "--device", "cpu"},
      {"tune", "--device", "cpu", "--force"},
      {"explain", "--device", "cpu"},
      {"freeze", "--device", "cpu", "--out", lock},
      {"pin", "--device", "cpu", "--config", "BLOCK=256-VEC=1"},
  };
  tune_another_problem();
  for (const auto& command : commands) {
    const CliResult refused = run(command);
    EXPECT_EQ(refused.exit_code, 1) << command[0];
    EXPECT_THAT(refused.err, HasSubstr("swiglu: there is no kernel for the CPU")) << command[0];
    EXPECT_THAT(refused.err, testing::Not(HasSubstr("could not be tuned"))) << command[0];
    EXPECT_THAT(refused.out, IsEmpty()) << command[0];
  }
  EXPECT_FALSE(std::filesystem::exists(lock));
}

TEST_F(CliOwnKernel, MissingDescriptionIsNamed) {
  const std::string file = sandbox_.folder() + "/problems.txt";
  std::ofstream(file) << "swiglu@0123456789ab/f32,f32,f32/v8/n3\n";
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
  const CliResult shown = another.run({"show", "--from", file, "--kernel", description_});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  const CliResult listed = another.run(
      {"prewarm", "--arch", "sm_90", "--list", "--from", file, "--kernel", description_});
  EXPECT_EQ(listed.out, key) << listed.err;
}

TEST_F(CliOwnKernel, ShowListsOnlyItsProblem) {
  tune_another_problem();
  const CliResult shown = run({"show", "--json"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_EQ(shown.document()["winners"].size(), 0U);
  EXPECT_EQ(sandbox_.run({"show", "--json"}).document()["winners"].size(), 1U);
}

}  // namespace
}  // namespace dorajit::test
