// Standard output that is full, closed, or read by nobody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>

#include "cache/records/trial_lines.h"
#include "tests/apps/cli/cli_sandbox.h"
#include "tests/cache/records/sample_records.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

class CliLostOutput : public testing::Test {
 protected:
  // Standard output goes where `redirection` says, as a shell reads it.
  CliResult run(const std::string& redirection, const Words& arguments) const {
    return sandbox_.run_words(
        with({"/bin/sh", "-c", "\"$0\" \"$@\" " + redirection, DORAJIT_CLI}, arguments));
  }

  const CliSandbox sandbox_;
};

TEST_F(CliLostOutput, FullDeviceFailsEveryCommandThatPrints) {
  for (const char* command : {"--help", "--version", "doctor --device cpu --json", "export", "show",
                              "explain --shape 8x512 --device cpu", "report --json",
                              "freeze --shape 8x512 --device cpu", "cache path", "import --rebuild",
                              "cache size", "prewarm --list --shape 8x512 --arch native-cpu"}) {
    EXPECT_THAT(run(">/dev/full", command),
                fails(kFailed,
                      "dorajit: error: cannot write to standard output: No space left on "
                      "device"))
        << command;
  }
}

TEST_F(CliLostOutput, ClosedOutputFails) {
  for (const char* command : {"show", "--version"}) {
    EXPECT_THAT(run(">&-", {command}),
                fails(kFailed, "cannot write to standard output: Bad file descriptor"))
        << command;
  }
}

TEST_F(CliLostOutput, ClosedOutputIsNotReusedForFiles) {
  const Words tune = "tune --shape 8x512 --device cpu --json";
  EXPECT_EQ(run(">&- 2>&- <&-", tune).exit_code, kFailed);
  EXPECT_EQ(sandbox_.run({"doctor", sandbox_.database()}).exit_code, 0)
      << "nothing was printed into the database";
  EXPECT_EQ(sandbox_.json("show")["winners"].size(), 1);
}

TEST_F(CliLostOutput, ClosedPipeFails) {
  const std::string code = sandbox_.file("code");
  const Words words = {"/bin/sh", "-c",
                       "{ sleep 0.2; \"$0\" show; echo $? > \"$1\"; } | :", DORAJIT_CLI, code};
  const CliResult result = sandbox_.run_words(words);
  EXPECT_THAT(result.err, HasSubstr("cannot write to standard output: Broken pipe"));
  int found = -1;
  std::ifstream(code) >> found;
  EXPECT_EQ(found, kFailed);
}

TEST_F(CliLostOutput, EarlierFailureKeepsItsExitCode) {
  EXPECT_EQ(run(">/dev/full", {"--json", "tune", "--shape", "4"}).exit_code, 2);
}

TEST_F(CliLostOutput, ControlCharactersOfNamesAreEscaped) {
  const CliResult result = sandbox_.run({"import", "no\x1b[31m.jsonl"});
  EXPECT_THAT(result, fails(kFailed, "no\\u001b[31m.jsonl"));
  EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
}

TEST(CliProgressBar, LinesFitTheTerminal) {
  CliSandbox sandbox;
  sandbox.set("TERM", "xterm");
  const CliResult result = sandbox.run_on_terminal(
      {"tune", "--op", "backward", "--shape", "8x512", "--device", "cpu", "--seconds", "0.1"});
  EXPECT_THAT(result.err, HasSubstr("tuning backward/bf16,"));
  constexpr std::string_view kClearLine = "\033[K";
  std::size_t longest = 0;
  std::string_view rest = result.err;
  for (std::size_t at = 0; (at = rest.find(kClearLine)) != std::string_view::npos;) {
    rest.remove_prefix(at + kClearLine.size());
    longest = std::max(longest, rest.substr(0, rest.find_first_of("\r\n")).size());
  }
  EXPECT_EQ(longest, 79) << "of a terminal of unknown width";
}

TEST(CliProgressBar, ControlCharactersOfNamesAreEscaped) {
  CliSandbox sandbox;
  sandbox.set("TERM", "xterm");
  const std::string file =
      sandbox.write("no\x1b[31m.jsonl", cache::to_lines(cache::sample_trials(1, 2)).lines);
  const CliResult result = sandbox.run_on_terminal({"import", file});
  EXPECT_THAT(result, fails(0, "reading " + sandbox.file("no\\u001b[3")));
  EXPECT_EQ(result.err.find("\x1b[31m"), std::string::npos);
}

}  // namespace
}  // namespace dorajit::test
