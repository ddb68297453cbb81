// Commands whose output is what the tuning database has, where it cannot be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kFailed = 1;

TEST(CliUnreadableDatabase, FailsEveryCommandThatReadsIt) {
  const CliSandbox sandbox;
  const std::string database = sandbox.cache_dir() + "/tuning.db";
  const std::string out = sandbox.folder() + "/made";
  std::filesystem::create_directories(database);  // a folder in the place of the file
  const std::vector<std::vector<std::string>> commands = {{"export"},
                                                          {"export", "--out", out},
                                                          {"show"},
                                                          {"show", "--trials", "--json"},
                                                          {"report", "--json"},
                                                          {"report", "--html", out},
                                                          {"freeze", "--device", "cpu"}};
  for (const std::vector<std::string>& command : commands) {
    const CliResult result = sandbox.run(command);
    EXPECT_EQ(result.exit_code, kFailed) << command[0];
    if (command.back() != "--json") EXPECT_THAT(result.out, IsEmpty()) << command[0];
    EXPECT_THAT(result.err, HasSubstr("error: cannot read the tuning database " + database + ": " +
                                      database + " is not a file; `dorajit doctor` checks"))
        << command[0];
  }
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(CliUnreadableDatabase, UnusableFolderIsReported) {
  const CliSandbox sandbox;
  const CliResult result = sandbox.run({"export", "--cache-dir", "/dev/null/cache"});
  EXPECT_EQ(result.exit_code, kFailed);
  EXPECT_THAT(result.err, HasSubstr("error: there is no tuning database to read: cannot"));
  EXPECT_THAT(result.err, HasSubstr("set DORAJIT_CACHE_DIR to a writable folder"));
}

}  // namespace
}  // namespace dorajit::test
