#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "cache/database/tuning_store.h"
#include "tests/apps/cli/cli_sandbox.h"
#include "tests/cache/records/sample_records.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

using CliUsage = CliTest;

TEST_F(CliUsage, VersionIsOneLine) {
  const CliResult version = sandbox_.succeed("--version");
  EXPECT_THAT(version.out, testing::MatchesRegex("dorajit [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST_F(CliUsage, WrongCommandLinesAreExplained) {
  const struct {
    Words arguments;
    const char* message;
  } cases[] = {
      {"--json", "no command is given"},
      {"frobnicate", "there is no command 'frobnicate'"},
      {"doctor --frobnicate", "--frobnicate"},
      {"doctor --device gpu", "none of: cpu, cuda, cuda:N"},
      {"doctor --device cuda:", "none of: cpu, cuda, cuda:N"},
      {"import --device gpu --rebuild", "none of: cpu, cuda, cuda:N"},
      {"tune", "tune needs a problem: --shape RxC, --rows R --cols C or --from FILE"},
      {"explain", "explain needs a problem: --shape RxC, --rows R --cols C or --from FILE"},
      {"forget", "forget needs a problem: --shape RxC, --rows R --cols C or --from FILE"},
      {"pin", "pin needs a problem: --shape RxC, --rows R --cols C or --from FILE"},
      {"pin --shape 4x4", "pin needs --config CONFIG or --remove"},
      {"pin --shape 4x4 --config x --remove", "excludes"},
      {"prewarm", "prewarm needs problems: one of --shape RxC, --from FILE and --kernel FILE.json"},
      {"report", "report needs --html FILE, the page to write, or --json"},
      {"tune --rows 4", "--rows requires --cols"},
      {"tune --rows -4 --cols 4", "must be at least 1"},
      {"tune --shape 4x", "ROWSxCOLS"},
      {"tune --shape 4294967296x268435456", "more than 2^47 bytes"},
      {"tune --force --shape 2305843009213693953x1", "more than 2^47 bytes"},
      {"explain --shape 2305843009213693953x1", "more than 2^47 bytes"},
      {"prewarm --shape 2305843009213693953x1", "more than 2^47 bytes"},
      {"tune --shape 4x4 --type int8", "f32, bf16, f16, f64"},
      {"tune --shape 4x4 --types f32,f32", "compose has 4 operands"},
      {"tune --shape 4x4 --types f64,f32,f32,f32", "f64 goes only with f64"},
      {"tune --shape 4x4 --type f32 --types f32", "excludes --type"},
      {"prewarm --arch pentium --op compose", "--arch pentium: unknown architecture"},
      {"prewarm --arch pentium --shape 2x64", "--arch pentium: unknown architecture"},
      {"prewarm --arch pentium --shape 2x64 --list", "--arch pentium: unknown architecture"},
      {"prewarm --arch native-cpu --op fold", "--op fold is none of: compose"},
      {"demo --tokens 0", "--tokens"},
      {"tune --shape 4x4 --seconds nan", "nan not in range"},
      {"tune --shape 4x4 --seconds inf", "inf not in range"},
      {"tune --shape 4x4 --seconds=-1", "-1 not in range"},
      {"prewarm --shape 4x4 --seconds NaN", "NaN not in range"},
      {"freeze --op backward", "--op requires --shape RxC, or --kernel FILE.json"},
      {"freeze --compare none", "--compare"},
      {"freeze --check x --out y", "--check"},
      {"daemon start --duty 200", "--duty"},
      {"freeze --with n=9", "--with requires --kernel"},
      {"freeze --check x.lock --shape 4x4", "leave out the options"},
      {"show --op backward", "--op requires --shape"},
      {"show --type bf16", "--type requires --shape"},
      {"forget --from problems.txt --per-row", "--per-row requires --shape"},
      {"import", "import needs a FILE"},
      {"cache prune", "--max-bytes"},
      {"cache prune --max-bytes much", "--max-bytes"},
      {"cache", "dorajit cache --help"},
      {"run", "program is required"},
      {"run python --lr 1", "--lr"},
  };
  for (const auto& one : cases) {
    const CliResult result = sandbox_.run(one.arguments);
    EXPECT_EQ(result.exit_code, kUsage) << one.message;
    EXPECT_THAT(result.err, StartsWith("dorajit: error: "));
    EXPECT_THAT(result.err, HasSubstr(one.message));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST_F(CliUsage, HelpIsACommandAndWhatNoArgumentsPrint) {
  const auto help_of = [&](const Words& arguments) {
    const CliResult result = sandbox_.succeed(arguments);
    return result.out;
  };
  EXPECT_EQ(help_of({}), help_of({"--help"}));
  EXPECT_EQ(help_of({"help"}), help_of({"--help"}));
  EXPECT_EQ(help_of({"help", "daemon", "start"}), help_of({"daemon", "start", "--help"}));
}

TEST_F(CliUsage, ErrorOfAnOperationNamesThoseThatHelpOffers) {
  const std::string help = sandbox_.run("tune --help").out;
  const std::size_t from = help.find("--op ") + 5;
  // In several lines, each but the last of which ends with a bar.
  std::string offered = help.substr(from, help.find("The operation", from) - from);
  std::erase_if(offered, [](char c) { return c == ' ' || c == '\n'; });
  for (std::size_t at = 0; (at = offered.find('|', at)) != std::string::npos; ++at) {
    offered.replace(at, 1, ", ");
  }
  EXPECT_THAT(sandbox_.run("tune --op compse --shape 4x4").err,
              HasSubstr("--op compse is none of: " + offered + "\n"));
}

TEST_F(CliUsage, DatabaseThatIsReadGetsNoFilesBesideIt) {
  const std::string folder = sandbox_.file("read");
  const std::string file = folder + "/shipped.db";
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  cache::TuningStore::open(folder)->merge(std::vector{cache::sample_trial(1, 0)});
  std::filesystem::rename(folder + "/tuning.db", file);
  const auto files = [&] {
    return std::ranges::count_if(std::filesystem::directory_iterator(folder), [](const auto& one) {
      return one.path().filename().string().starts_with("shipped");
    });
  };
  ASSERT_EQ(files(), 1);
  const std::vector<Words> commands = {{"doctor", file},
                                       {"export", "--from", file},
                                       {"report", "--json", "--from", file},
                                       {"import", file}};
  for (const auto& command : commands) {
    EXPECT_EQ(sandbox_.run(command).exit_code, 0) << command[0];
    EXPECT_EQ(files(), 1) << command[0];
  }
}

TEST_F(CliUsage, RunBecomesAProgramThatPatches) {
  const auto shell = [&](const std::string& script) {
    return sandbox_.run(
        {"--cache-dir", "/some/cache", "run", "--", "/bin/sh", "-c", script, "--json", "--"});
  };
  const std::string show = "echo $DORAJIT_PATCH_PEFT $DORAJIT_CACHE_DIR $0 $1; exit 7";
  EXPECT_EQ(shell(show).exit_code, 7);
  EXPECT_EQ(shell(show).out, "1 /some/cache --json --\n");
  sandbox_.set("DORAJIT_PATCH_PEFT", "dropout=low_rank");
  EXPECT_EQ(shell(show).out, "dropout=low_rank /some/cache --json --\n");
  EXPECT_EQ(shell("kill -PIPE $$; echo ignored").out, "");
  EXPECT_THAT(sandbox_.run("run -- /missing/program"),
              fails(1, "cannot run /missing/program: No such file"));
}

TEST_F(CliUsage, FilesWithoutAnEndAreRefused) {
  const std::string pipe = sandbox_.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::vector<Words> commands = {{"import"},
                                       {"doctor"},
                                       {"export", "--from"},
                                       {"report", "--html", sandbox_.file("page.html"), "--from"},
                                       {"freeze", "--check"},
                                       {"prewarm", "--from"},
                                       {"explain", "--with", "n=4", "--kernel"}};
  for (auto command : commands) {
    command.emplace_back();
    for (const std::string& path : {pipe, std::string("/dev/zero")}) {
      command.back() = path;
      const CliResult result = sandbox_.run(command);
      EXPECT_EQ(result.exit_code, 1) << command[0];
      EXPECT_THAT(result.err + result.out, HasSubstr("it is not a regular file")) << command[0];
    }
  }
}

TEST_F(CliUsage, UnknownValueOfAnEnvironmentVariableIsRefused) {
  sandbox_.set("DORAJIT_TUNE", "banana");
  EXPECT_THAT(sandbox_.run("show"), fails(kUsage, "DORAJIT_TUNE is \"banana\""));
}

TEST_F(CliUsage, FailureWithJsonIsADocumentToo) {
  for (const auto& [arguments, message] : std::vector<std::pair<Words, std::string>>{
           {"--json tune --shape 4", "ROWSxCOLS"},
           {"freeze --shape 4x64 --device cpu --json", "needs --out FILE"},
           {"export --json", "needs --out FILE"}}) {
    const CliResult result = sandbox_.run(arguments);
    EXPECT_THAT(result, fails(kUsage, message));
    EXPECT_EQ(result.document()["error"]["code"], "INVALID_ARGUMENT");
    EXPECT_THAT(result.err, StartsWith("dorajit: error: "));
  }
}

TEST_F(CliUsage, MissingDeviceIsUnavailable) {
  const CliResult result = sandbox_.run("tune --shape 4x4 --device cuda:63");
  EXPECT_EQ(result.exit_code, kUnavailable);
  EXPECT_THAT(result.err, StartsWith("dorajit: error: "));
}

}  // namespace
}  // namespace dorajit::test
