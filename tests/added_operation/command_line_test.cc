// The command line with an operation of three sizes, none of which is named rows or cols.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

constexpr const char* kProblem = "tile_products/f32,f32,f32,f32/v1/i12/c45/r3";

class AddedCommandLine : public testing::Test {
 protected:
  // Runs a command with the operation on the CPU.
  CliResult run(Words words) {
    const Words rest = "--op tile_products --type f32 --device cpu --json";
    words.insert(words.end(), rest.begin(), rest.end());
    return sandbox_.run(words);
  }

  CliSandbox sandbox_;
};

TEST_F(AddedCommandLine, ShapeAndNamedOptionsSetTheSizes) {
  const std::vector<Words> forms = {{"--shape", "7x12x45"},
                                    {"--shape", "7x12", "--cols", "45"},
                                    {"--rows", "7", "--inner", "12", "--cols", "45"}};
  for (const auto& form : forms) {
    Words words = "tune";
    words.insert(words.end(), form.begin(), form.end());
    const CliResult result = run(words);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto problem = result.document()["problems"][0];
    EXPECT_THAT(problem,
                has({{"/problem", kProblem}, {"/rows_up_to", 8}, {"/inner", 12}, {"/cols", 45}}));
  }
}

TEST_F(AddedCommandLine, WinnerIsExplainedShownAndExported) {
  ASSERT_EQ(run({"tune", "--shape", "7x12x45"}).exit_code, 0);
  const CliResult explained = run({"explain", "--shape", "7x12x45"});
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_EQ(explained.document()["problems"][0]["source"], "user database");
  EXPECT_THAT(sandbox_.run("show").out, HasSubstr(kProblem));
  const std::string exported = sandbox_.folder() + "/trials.jsonl";
  ASSERT_EQ(sandbox_.run({"export", "--out", exported}).exit_code, 0);
  std::ifstream file(exported);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr(kProblem));
  const std::string page = sandbox_.folder() + "/report.html";
  const CliResult report = sandbox_.run({"report", "--html", page});
  EXPECT_EQ(report.exit_code, 0) << report.err;
}

TEST_F(AddedCommandLine, PrewarmAcceptsOperationsWithTheGivenNumberOfSizes) {
  const CliResult three = sandbox_.run(
      {"prewarm", "--list", "--arch", "native-cpu", "--type", "f32", "--shape", "7x12x45"});
  ASSERT_EQ(three.exit_code, 0) << three.err;
  EXPECT_THAT(three.out, HasSubstr(kProblem));
  EXPECT_THAT(three.out, testing::Not(HasSubstr("scaled_residual/")));
  const CliResult two = sandbox_.run(
      {"prewarm", "--list", "--arch", "native-cpu", "--type", "f32", "--shape", "7x45"});
  EXPECT_THAT(two.out, HasSubstr("scaled_residual/"));
  EXPECT_THAT(two.out, testing::Not(HasSubstr("tile_products/")));
  const CliResult none =
      sandbox_.run("prewarm --list --arch native-cpu --op tile_products --type f32 --shape 7x45");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("has as many sizes"));
}

TEST_F(AddedCommandLine, InvalidSizesAreNamedInTheError) {
  EXPECT_THAT(run({"tune", "--shape", "7x12"}).err, HasSubstr("requires --cols"));
  EXPECT_THAT(run({"tune", "--shape", "7x12x45x2"}).err, HasSubstr("ROWSxINNERxCOLS"));
  EXPECT_THAT(run({"tune", "--shape", "7x"}).err, HasSubstr("ROWSxINNERxCOLS"));
  EXPECT_THAT(run({"tune", "--shape", "7x12x45", "--inner", "3"}).err, HasSubstr("give it once"));
  EXPECT_THAT(sandbox_.run("tune --shape 7x12 --inner 3").err,
              HasSubstr("--inner is not a size of compose"));
}

}  // namespace
}  // namespace dorajit::test
