// Completion in bash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <sstream>
#include <string>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::Contains;
using testing::IsSupersetOf;
using Set = std::set<std::string>;

constexpr const char* kCompletion = DORAJIT_SOURCE_DIR "/apps/cli/completion.bash";

// What bash offers for the last of the words.
Set bash_offers(const std::string& words) {
  const std::string script = std::string("source ") + kCompletion + "; COMP_WORDS=(" + words +
                             "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _dorajit;"
                             " printf '%s\\n' \"${COMPREPLY[@]}\"";
  CliSandbox sandbox;
  sandbox.set("PATH", std::filesystem::path(DORAJIT_CLI).parent_path().string() + ":" +
                          std::filesystem::path(DORAJITD).parent_path().string() +
                          ":/usr/local/bin:/usr/bin:/bin");
  std::istringstream text(
      sandbox.run_words({"/usr/bin/env", "bash", "--norc", "--noprofile", "-c", script}).out);
  Set offers;
  for (std::string line; std::getline(text, line);) {
    if (!line.empty()) offers.insert(line);
  }
  return offers;
}

TEST(CliCompletion, CommandsOptionsAndValuesAreOffered) {
  EXPECT_THAT(bash_offers("dorajit \"\""), IsSupersetOf({"tune", "export", "cache", "daemon"}));
  EXPECT_THAT(bash_offers("dorajit --"), Contains("--version"));
  EXPECT_EQ(bash_offers("dorajit ex"), (Set{"explain", "export"}));
  EXPECT_EQ(bash_offers("dorajit tune --ty"), (Set{"--type", "--types"}));
  EXPECT_EQ(bash_offers("dorajit --json tune --fo"), Set{"--force"});
  EXPECT_EQ(bash_offers("dorajit explain --fo"), Set{});
  EXPECT_EQ(bash_offers("dorajit tune --type b"), Set{"bf16"});
  EXPECT_EQ(bash_offers("dorajit tune --type = b"), Set{"bf16"});
  EXPECT_EQ(bash_offers("dorajit --device \"\""), (Set{"cpu", "cuda"}));
  EXPECT_EQ(bash_offers("dorajit --cache-dir ex"), Set{}) << "a folder, which bash completes";
  EXPECT_EQ(bash_offers("dorajit cache pa"), Set{"path"});
  EXPECT_EQ(bash_offers("dorajit daemon st"), (Set{"start", "status", "stop"}));
  EXPECT_EQ(bash_offers("dorajit cache path --js"), Set{"--json"});
}

TEST(CliCompletion, OptionsOfTheDaemonAreOffered) {
  EXPECT_EQ(bash_offers("dorajitd --w"), (Set{"--worker-memory", "--worker-seconds"}));
  EXPECT_THAT(bash_offers("dorajitd --"), IsSupersetOf({"--foreground", "--idle-exit"}));
  EXPECT_EQ(bash_offers("dorajitd \"\""), Set{});
}

}  // namespace
}  // namespace dorajit::test
