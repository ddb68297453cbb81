// export, import and the check of their files by doctor
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "autotune/search/tuning_session.h"
#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::ptrdiff_t lines_in(const std::string& text) { return std::ranges::count(text, '\n'); }

// A machine that has tuned one problem.
class CliTrials : public testing::Test {
 protected:
  void SetUp() override { here_.succeed("tune --rows 8 --cols 512 --device cpu"); }

  // What is exported from there.
  static std::string exported(const CliSandbox& sandbox) { return sandbox.succeed("export").out; }
  [[nodiscard]] std::string file(const std::string& name) const { return here_.file(name); }
  [[nodiscard]] static nlohmann::json winners(const CliSandbox& sandbox) {
    nlohmann::json found = sandbox.json("show")["winners"];
    for (nlohmann::json& winner : found) winner.erase("age_s");
    return found;
  }

  const CliSandbox here_;
  const CliSandbox there_;
};

TEST_F(CliTrials, ImportOfAnExportGivesTheSameTrialsAndWinners) {
  const std::string path = file("trials.jsonl");
  const auto written = here_.json({"export", "--out", path});
  const auto trials = written["trials"].get<std::ptrdiff_t>();
  EXPECT_GT(trials, 1);
  EXPECT_EQ(lines_in(read_file(path)), trials + 2) << "with the header and the closing line";

  const auto imported = there_.json({"import", path});
  EXPECT_THAT(imported, has({{"/added", trials}, {"/winners_changed", 1}}));
  ASSERT_EQ(winners(there_).size(), 1);
  // Derived there from the trials, it is the one that the tuning found.
  EXPECT_EQ(winners(there_)[0], winners(here_)[0]);
  EXPECT_EQ(exported(there_), read_file(path));

  const auto again = there_.json({"import", path});
  EXPECT_THAT(again, has({{"/added", 0}, {"/known", trials}, {"/winners_changed", 0}}));
}

TEST_F(CliTrials, HostIsExportedAsAHash) {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  const std::string text = exported(here_);
  EXPECT_THAT(text, HasSubstr("\"host\":\"" + autotune::host_id() + "\""));
  EXPECT_THAT(text, testing::Not(HasSubstr("\"host\":\"" + std::string(name) + "\"")));
  EXPECT_EQ(autotune::host_id(name), autotune::host_id());
  EXPECT_NE(autotune::host_id("another"), autotune::host_id());
  EXPECT_EQ(autotune::host_id().size(), 12U);
}

TEST_F(CliTrials, ImportedWinnersAreNotTunedAgain) {
  there_.succeed({"import", here_.database()});
  const auto known = there_.json("tune --rows 8 --cols 512 --device cpu");
  EXPECT_EQ(known["statistics"]["trials"], 0);
}

TEST_F(CliTrials, ExportFiltersByDevice) {
  const CliResult none = here_.succeed({"export", "--device", "no such device"});
  EXPECT_EQ(lines_in(none.out), 2);
  EXPECT_THAT(none.err, HasSubstr("0 trials from"));
}

TEST_F(CliTrials, ExportReportsUnwritablePaths) {
  EXPECT_THAT(here_.run({"export", "--out", file("no/such/folder/x.jsonl")}),
              fails(kFailed, "no/such/folder/x.jsonl: No such file or directory"));
}

TEST_F(CliTrials, ExportMergesFilesInAnyOrder) {
  there_.succeed("tune --rows 8 --cols 1024 --device cpu");
  here_.write("here.jsonl", exported(here_));
  const std::string there = there_.database();
  const auto merged = here_.json(
      {"export", "--out", file("one.jsonl"), "--from", file("here.jsonl"), "--from", there});
  EXPECT_EQ(merged["winners"], 2);
  // Text may be put in the place of what it was made of.
  here_.succeed({"export", "--out", file("here.jsonl"), "--from", there, "--from",
                 file("here.jsonl"), "--from", there});
  EXPECT_EQ(read_file(file("one.jsonl")), read_file(file("here.jsonl")));
  here_.succeed({"doctor", file("one.jsonl")});

  const std::string here = here_.database();
  const std::vector<Words> onto_databases = {{"export", "--out", there, "--from", there},
                                             {"export", "--out", here}};
  for (const auto& command : onto_databases) {
    EXPECT_EQ(here_.run(command).exit_code, kUsage);
    EXPECT_EQ(here_.run({"doctor", command[2]}).exit_code, 0) << "it must still be a database";
  }
}

TEST_F(CliTrials, BadLinesAreNamedAndSkipped) {
  std::string text = exported(here_);
  const std::size_t second = text.find('\n') + 1;
  text.replace(second, text.find('\n', second) - second, "no trial");
  here_.write("bad.jsonl", text);
  const CliResult imported = there_.succeed({"import", file("bad.jsonl"), "--json"});
  EXPECT_THAT(imported.err, HasSubstr("bad.jsonl:2: skipped: it is not a JSON object"));
  EXPECT_THAT(imported.document(), has({{"/added", lines_in(text) - 3}, {"/files/0/bad", 1}}));

  const CliResult verified = here_.run({"doctor", file("bad.jsonl")});
  EXPECT_EQ(verified.exit_code, kFailed);
  EXPECT_THAT(verified.out, HasSubstr("1 bad line"));
  EXPECT_THAT(verified.out, HasSubstr("bad.jsonl:2: it is not a JSON object"));
  EXPECT_EQ(here_.run({"doctor", file("bad.jsonl"), "--json"}).document()["good"], false);
}

TEST_F(CliTrials, TruncatedFileIsRefusedWithoutPartial) {
  const std::string text = exported(here_);
  const std::size_t third = text.find('\n', text.find('\n') + 1) + 1;
  here_.write("cut.jsonl", text.substr(0, third + 10));
  const std::string cut = file("cut.jsonl");
  const std::vector<Words> commands = {{"import", cut},
                                       {"export", "--out", file("whole.jsonl"), "--from", cut},
                                       {"report", "--json", "--from", cut}};
  for (Words command : commands) {
    const CliResult refused = there_.run(command);
    EXPECT_THAT(refused, fails(kFailed, "cut.jsonl is damaged: it has no closing line"))
        << command[0];
    EXPECT_THAT(refused.err, HasSubstr("--partial"));
    command.emplace_back("--partial");
    EXPECT_THAT(there_.run(command), fails(0, "cut.jsonl: it has no closing line"));
  }
  EXPECT_FALSE(std::filesystem::exists(file("cut.jsonl.tmp")));
  here_.succeed({"doctor", file("whole.jsonl")});
  const CliResult verified = here_.run({"doctor", cut, "--json"});
  EXPECT_EQ(verified.exit_code, kFailed);
  EXPECT_EQ(verified.document()["trials"], 1);
  EXPECT_THAT(verified.document()["damage"], HasSubstr("closing line"));
}

TEST_F(CliTrials, ExportWritesThroughLinksAndIntoPipes) {
  here_.write("target.jsonl", "what was there");
  std::filesystem::create_symlink(file("target.jsonl"), file("link.jsonl"));
  here_.succeed({"export", "--out", file("link.jsonl")});
  EXPECT_TRUE(std::filesystem::is_symlink(file("link.jsonl")));
  EXPECT_EQ(read_file(file("target.jsonl")), exported(here_));
  const CliResult full = here_.run("export --out /dev/full");
  EXPECT_THAT(full, fails(kFailed, "cannot write /dev/full: No space left on device"));
  EXPECT_THAT(full.err, testing::Not(HasSubstr("DORAJIT_CACHE_DIR")));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(CliTrials, FilesOfOtherFormatsAreRefused) {
  here_.write("other.txt", "hello\n");
  for (const std::string& path : {file("other.txt"), file("missing.jsonl"), here_.folder()}) {
    for (const char* command : {"import", "doctor"}) {
      const CliResult result = there_.run({command, path});
      EXPECT_THAT(result, fails(kFailed, path)) << path;
      EXPECT_THAT(result.out, IsEmpty());
    }
  }
  EXPECT_THAT(winners(there_), IsEmpty());
}

TEST_F(CliTrials, DamagedDatabaseIsReportedAndUnchanged) {
  const std::string database = here_.database();
  here_.succeed({"doctor", database});
  const std::string bytes = read_file(database);
  const std::string half = bytes.substr(0, bytes.size() / 2);
  here_.write("cache/tuning.db", half);
  const CliResult damaged = here_.run({"doctor", database, "--json"});
  EXPECT_EQ(damaged.exit_code, kFailed);
  EXPECT_EQ(damaged.document()["good"], false);
  EXPECT_NE(damaged.document()["damage"], "");
  EXPECT_EQ(read_file(database), half);
  EXPECT_EQ(there_.run({"import", database}).exit_code, kFailed);
}

TEST_F(CliTrials, RebuildFindsTheSameWinners) {
  const auto before = winners(here_);
  const auto rebuilt = here_.json("import --rebuild");
  EXPECT_EQ(rebuilt["winners"], 1);
  EXPECT_THAT(winners(here_),
              has({{"/0/config", before[0]["config"]}, {"/0/median_ns", before[0]["median_ns"]}}));
}

TEST(CliImport, UnwritableDatabaseFails) {
  const CliSandbox sandbox;
  EXPECT_THAT(sandbox.run("import --rebuild --cache-dir /dev/null/cache"),
              fails(kFailed, "cannot be written"));
  sandbox.write("x.jsonl",
                "{\"format\":\"dorajit-trials\",\"version\":1}\n"
                "{\"end\":\"dorajit-trials\",\"trials\":0}\n");
  EXPECT_THAT(sandbox.run({"import", sandbox.file("x.jsonl"), "--cache-dir", "/dev/null/cache"}),
              fails(kFailed, "nothing was imported"));
}

}  // namespace
}  // namespace dorajit::test
