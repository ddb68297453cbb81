// Every command that the program lists has help, an example that is right, and --json; completion
// in bash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/table.h"
#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The indented lines below a heading, without their indentation.
Words section(const std::string& help, const std::string& heading) {
  Words found;
  bool is_inside = false;
  for (const std::string& line : lines_of(help)) {
    if (line.starts_with("  ")) {
      if (is_inside && line[2] != ' ') found.push_back(line.substr(2));
    } else {
      is_inside = line == heading;
    }
  }
  return found;
}

std::string first_word(const std::string& line) { return line.substr(0, line.find(' ')); }

Words followed_by(Words words, const std::string& last) {
  words.push_back(last);
  return words;
}

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// The command lines of the program in a shell's line.
std::vector<Words> runs_in(const std::string& line) {
  std::vector<Words> runs;
  std::istringstream words(line);
  bool is_ours = false;
  for (std::string word; words >> word;) {
    if (word.ends_with("dorajit") && word.find_first_of("/.") == std::string::npos) {
      runs.emplace_back();
      is_ours = true;
    } else if (word == "|" || word == ">" || word == "&&") {
      is_ours = false;
    } else if (is_ours) {
      runs.back().push_back(word.substr(0, word.find_first_of(")\"")));
    }
  }
  return runs;
}

// Every command and subcommand with its help, as the program itself lists them.
class EveryCommand : public testing::Test {
 protected:
  EveryCommand() { visit({}); }

  void visit(const Words& command) {
    const CliResult help = sandbox_.run(followed_by(command, "--help"));
    EXPECT_EQ(help.exit_code, 0) << joined(command) << help.err;
    helps_[command] = help.out;
    const auto listed = section(help.out, "Subcommands:");
    if (listed.empty()) leaves_.push_back(command);
    for (const std::string& line : listed) visit(followed_by(command, first_word(line)));
  }

  // The command whose words an example begins with.
  [[nodiscard]] Words command_of(const Words& words) const {
    Words command;
    for (const std::string& word : words) {
      if (!helps_.contains(followed_by(command, word))) break;
      command.push_back(word);
    }
    return command;
  }

  CliSandbox sandbox_;
  std::map<Words, std::string> helps_;
  std::vector<Words> leaves_;
};

TEST_F(EveryCommand, HasAnExample) {
  EXPECT_GT(helps_.size(), 20);
  for (const auto& [command, help] : helps_) {
    SCOPED_TRACE("dorajit " + joined(command));
    const auto examples = section(help, "Example:");
    EXPECT_FALSE(examples.empty()) << help;
    for (const std::string& example : examples) {
      const auto runs = runs_in(example);
      ASSERT_FALSE(runs.empty()) << example;
      const Words chosen = command_of(runs.front());
      ASSERT_FALSE(chosen.empty()) << example;
      EXPECT_EQ(Words(chosen.begin(), chosen.begin() + std::ssize(command)), command) << example;
      for (const std::string& word : runs.front()) {
        if (word.starts_with("--")) EXPECT_THAT(helps_.at(chosen), HasSubstr(word)) << example;
      }
    }
  }
}

TEST_F(EveryCommand, HasNoLongLines) {
  for (const auto& [command, help] : helps_) {
    for (const std::string& line : lines_of(help)) EXPECT_LE(line.size(), 100U) << line;
  }
}

TEST_F(EveryCommand, TakesJson) {
  for (const Words& command : leaves_) {
    EXPECT_THAT(helps_.at(command), HasSubstr("  --json ")) << joined(command);
  }
}

TEST_F(EveryCommand, PrintsOneJsonDocument) {
  sandbox_.set("DORAJIT_TUNE_SECONDS", "0.02");
  const std::string file = sandbox_.file("trials.jsonl");
  const Words shape = "--shape 8x512 --type f32";
  // What makes each succeed quickly, in the order in which they need each other.
  const std::vector<std::pair<Words, Words>> runs = {
      {{"doctor"}, {}},
      {{"tune"}, shape},
      {{"explain"}, shape},
      {{"show"}, {}},
      {{"report"}, {"--html", file + ".html"}},
      {{"demo"}, {"--quick", "--tokens", "1", "--type", "f32"}},
      {{"prewarm"}, {"--shape", "8x512", "--type", "f32", "--op", "compose", "--compile-only"}},
      {{"pin"}, {"--shape", "8x512", "--type", "f32", "--config", "b512-w1-r1-v1-u1-c0"}},
      {{"freeze"}, {"--out", file + ".lock"}},
      {{"export"}, {"--out", file}},
      {{"import"}, {file}},
      {{"forget"}, shape},
      {{"cache", "path"}, {}},
      {{"cache", "size"}, {}},
      {{"cache", "prune"}, {"--max-bytes", "1MiB"}},
      {{"cache", "clear"}, {"--winners"}},
      {{"daemon", "start"}, {}},
      {{"daemon", "status"}, {}},
      {{"daemon", "stop"}, {"--now"}},
      {{"run"}, {"--", "/bin/sh", "-c", R"(echo '{"command": "run"}')"}},  // the program's output
  };
  std::set<Words> done;
  for (const auto& [command, arguments] : runs) {
    Words words = command;
    words.insert(words.end(), arguments.begin(), arguments.end());
    words.insert(words.end(), {"--json", "--device", "cpu"});
    const CliResult result = sandbox_.run(words);
    EXPECT_EQ(result.exit_code, 0) << joined(words) << result.err;
    EXPECT_EQ(result.document()["command"], joined(command));
    done.insert(command);
  }
  EXPECT_THAT(done, testing::UnorderedElementsAreArray(leaves_))
      << "give a command that is new the arguments with which it succeeds quickly";
}

// The rows of the table below "## Exit codes".
TEST(CliExitCodes, MatchTheDocument) {
  std::ifstream file(DORAJIT_SOURCE_DIR "/docs/cli.md");
  std::stringstream text;
  text << file.rdbuf();
  std::map<int, std::string> documented;
  bool is_inside = false;
  for (const std::string& line : lines_of(text.str())) {
    if (line.starts_with("## ")) is_inside = line == "## Exit codes";
    int code = 0;
    if (!is_inside || std::sscanf(line.c_str(), "| %d |", &code) != 1) continue;
    const std::size_t begin = line.find('|', 1) + 2;
    documented[code] = line.substr(begin, line.rfind(" |") - begin);
  }
  std::map<int, std::string> meant;
  for (const cli::ExitCodeMeaning& one : cli::kExitCodes) meant[one.code] = one.meaning;
  EXPECT_EQ(documented, meant);

  const std::string help = CliSandbox().run("--help").out;
  for (const auto& [code, meaning] : meant) EXPECT_THAT(help, HasSubstr(" " + meaning + "\n"));
}

TEST(CliExitCodes, FollowFromErrors) {
  using cli::ExitCode;
  EXPECT_EQ(static_cast<int>(ExitCode::kOk), 0);
  EXPECT_EQ(cli::exit_code_of(StatusCode::kIoError), ExitCode{1});
  EXPECT_EQ(cli::exit_code_of(StatusCode::kCompileError), ExitCode{1});
  EXPECT_EQ(cli::exit_code_of(StatusCode::kInvalidArgument), ExitCode{2});
  EXPECT_EQ(cli::exit_code_of(StatusCode::kUnsupported), ExitCode{2});
  EXPECT_EQ(cli::exit_code_of(StatusCode::kNoDriver), ExitCode{3});
  EXPECT_EQ(cli::exit_code_of(StatusCode::kNoCompiler), ExitCode{3});
}

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

TEST(CliTable, WideRowsTakeSeveralLines) {
  cli::Table table({{"problem"}, {"time", cli::Align::kRight}, {"device"}});
  table.add_row({"short", "1 us", ""});
  table.add_row({std::string(90, 'p'), "12 us", std::string(40, 'd')});
  const std::string gap(83, ' ');
  EXPECT_EQ(table.text(), "problem" + gap + "   time\n    device\nshort" + gap + "     1 us\n" +
                              std::string(90, 'p') + "  12 us\n    " + std::string(40, 'd') + "\n");
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
  EXPECT_EQ(bash_offers("dorajit tune --op compose_l"), Set{"compose_low_rank"});
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
