// Manual pages and shell completions, as the build wrote them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
namespace fs = std::filesystem;

const std::string kManual = DORAJIT_MANUAL;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What a shell command prints, errors included.
std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  std::array<char, 4096> part{};
  while (const std::size_t size = std::fread(part.data(), 1, part.size(), pipe)) {
    text.append(part.data(), size);
  }
  if (pclose(pipe) != 0) text += "(failed)";
  return text;
}

bool is_here(const std::string& program) {
  return output_of("command -v " + program).find('/') != std::string::npos;
}

std::set<std::string> commands() {
  std::set<std::string> names;
  std::istringstream lines(CliSandbox().run({"--help"}).out);
  std::string line;
  while (std::getline(lines, line) && line != "Subcommands:") {
  }
  while (std::getline(lines, line) && line.starts_with("  ")) {
    if (line[2] != ' ') names.insert(line.substr(2, line.find(' ', 2) - 2));
  }
  return names;
}

TEST(CliManual, EveryCommandHasAPage) {
  std::set<std::string> expected = {"dorajit.1"};
  for (const std::string& command : commands()) expected.insert("dorajit-" + command + ".1");
  std::set<std::string> pages;
  for (const auto& page : fs::directory_iterator(kManual + "/man1")) {
    pages.insert(page.path().filename());
    const std::string text = read_file(page);
    for (const char* part : {".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH EXAMPLES",
                             ".SH EXIT STATUS", "\n\\fB130\\fR\n", "\\-\\-json"}) {
      EXPECT_THAT(text, HasSubstr(part)) << page;
    }
  }
  EXPECT_EQ(pages, expected);
  EXPECT_THAT(read_file(kManual + "/man1/dorajit-tune.1"),
              HasSubstr("dorajit tune \\-\\-op backward"));
}

TEST(CliManual, PagesAreCleanForMan) {
  if (!is_here("man")) GTEST_SKIP() << "man is not installed (Debian: man-db)";
  for (const auto& page : fs::directory_iterator(kManual + "/man1")) {
    EXPECT_THAT(output_of("LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -E UTF-8 -l '" +
                          page.path().string() + "' >/dev/null"),
                IsEmpty());
  }
  EXPECT_THAT(output_of("LC_ALL=C.UTF-8 MANWIDTH=80 man -l '" + kManual + "/man1/dorajit-tune.1'"),
              HasSubstr("dorajit tune --shape 512x4096 --shape 4096x14336 --type bf16"));
}

TEST(CliManual, PagesAreCleanForMandoc) {
  if (!is_here("mandoc")) GTEST_SKIP() << "mandoc is not installed";
  for (const auto& page : fs::directory_iterator(kManual + "/man1")) {
    // Pages carry no date, so that a build makes the same bytes on any day.
    EXPECT_THAT(output_of("mandoc -Tlint -W warning '" + page.path().string() +
                          "' | grep -v 'missing date' || true"),
                IsEmpty());
  }
}

// What bash offers for the last of the words.
std::set<std::string> bash_offers(const std::string& words) {
  std::istringstream text(output_of(
      "bash --norc --noprofile -c 'source " + kManual + "/bash/dorajit; COMP_WORDS=(" + words +
      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _dorajit; printf \"%s\\n\" \"${COMPREPLY[@]}\"'"));
  std::set<std::string> offers;
  for (std::string line; std::getline(text, line);) {
    if (!line.empty()) offers.insert(line);
  }
  return offers;
}

TEST(CliCompletion, BashKnowsCommandsOptionsAndValues) {
  const auto first = bash_offers("dorajit \"\"");
  for (const std::string& command : commands()) EXPECT_THAT(first, Contains(command));
  EXPECT_THAT(first, Contains("--version"));
  using Set = std::set<std::string>;
  EXPECT_EQ(bash_offers("dorajit ex"), (Set{"explain", "export"}));
  EXPECT_EQ(bash_offers("dorajit tune --ty"), (Set{"--type", "--types"}));
  EXPECT_EQ(bash_offers("dorajit --json tune --fo"), Set{"--force"});
  EXPECT_EQ(bash_offers("dorajit explain --fo"), Set{});
  EXPECT_EQ(bash_offers("dorajit tune --type b"), Set{"bf16"});
  EXPECT_EQ(bash_offers("dorajit tune --type = b"), Set{"bf16"});
  EXPECT_EQ(bash_offers("dorajit --device \"\""), (Set{"cpu", "cuda"}));
  EXPECT_EQ(bash_offers("dorajit --cache-dir show sh"), Set{"show"}) << "show is a value there";
  EXPECT_EQ(bash_offers("dorajit --cache-dir = x sh"), Set{"show"});
  EXPECT_EQ(bash_offers("dorajit cache r"), Set{"rebuild"});
  EXPECT_EQ(bash_offers("dorajit cache path --js"), Set{"--json"});
}

TEST(CliCompletion, BashOffersFilesWhereFilesAreMeant) {
  const CliSandbox sandbox;
  const std::string path = sandbox.folder() + "/with a space.jsonl";
  std::ofstream(path) << "x";
  const std::string begun = sandbox.folder() + "/w";
  for (const std::string command : {"verify ", "import ", "merge ", "tune --from "}) {
    EXPECT_THAT(bash_offers("dorajit " + command + begun), Contains(path)) << command;
  }
  EXPECT_THAT(bash_offers("dorajit show " + begun), Not(Contains(path)));
  EXPECT_THAT(bash_offers("dorajit --cache-dir " + begun), Not(Contains(path)));
}

TEST(CliCompletion, FishKnowsCommandsOptionsAndValues) {
  if (!is_here("fish")) GTEST_SKIP() << "fish is not installed";
  const CliSandbox sandbox;
  const auto offers = [&](const std::string& line) {
    return output_of("HOME='" + sandbox.folder() + "' fish --no-config -c 'source " + kManual +
                     "/fish/dorajit.fish; complete -C \"" + line + "\"'");
  };
  for (const std::string& command : commands()) {
    EXPECT_THAT(offers("dorajit "), HasSubstr(command + "\t"));
  }
  EXPECT_THAT(offers("dorajit tune --fo"), HasSubstr("--force\t"));
  EXPECT_THAT(offers("dorajit explain --fo"), IsEmpty());
  EXPECT_EQ(offers("dorajit tune --type b").substr(0, 5), "bf16\t");
  EXPECT_THAT(offers("dorajit cache r"), HasSubstr("rebuild\t"));
}

TEST(CliCompletion, ZshReadsItsFile) {
  if (!is_here("zsh")) GTEST_SKIP() << "zsh is not installed";
  EXPECT_THAT(output_of("zsh -n '" + kManual + "/zsh/_dorajit'"), IsEmpty());
  const std::string text = read_file(kManual + "/zsh/_dorajit");
  EXPECT_THAT(text, testing::StartsWith("#compdef dorajit\n"));
  for (const std::string& command : commands()) {
    std::string function = "_dorajit_" + command;
    std::ranges::replace(function, '-', '_');
    EXPECT_THAT(text, HasSubstr("        " + command + ") " + function + " ;;\n"));
  }
}

}  // namespace
}  // namespace dorajit::test
