// export, import and the check of their files by doctor
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "autotune/search/host_id.h"
#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kFailed = 1;
constexpr int kUsage = 2;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::ptrdiff_t lines_in(const std::string& text) { return std::ranges::count(text, '\n'); }

// A machine that has tuned one problem.
class CliTrials : public testing::Test {
 protected:
  void SetUp() override {
    const CliResult tuned =
        here_.run({"tune", "--rows", "8", "--cols", "512", "--device", "cpu", "--json"});
    ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  }

  // What is exported from there.
  std::string exported(const CliSandbox& sandbox) {
    const CliResult result = sandbox.run({"export"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  [[nodiscard]] std::string file(const std::string& name) const {
    return here_.folder() + "/" + name;
  }
  [[nodiscard]] static nlohmann::json winners(const CliSandbox& sandbox) {
    nlohmann::json found = sandbox.run({"show", "--json"}).document()["winners"];
    for (nlohmann::json& winner : found) winner.erase("age_s");
    return found;
  }

  const CliSandbox here_;
  const CliSandbox there_;
};

TEST_F(CliTrials, ImportOfAnExportGivesTheSameTrialsAndWinners) {
  const std::string path = file("trials.jsonl");
  const CliResult written = here_.run({"export", "--out", path, "--json"});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const auto trials = written.document()["trials"].get<std::ptrdiff_t>();
  EXPECT_GT(trials, 1);
  EXPECT_EQ(lines_in(read_file(path)), trials + 2) << "with the header and the closing line";

  const CliResult imported = there_.run({"import", path, "--json"});
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_EQ(imported.document()["added"], trials);
  EXPECT_EQ(imported.document()["winners_changed"], 1);
  ASSERT_EQ(winners(there_).size(), 1);
  // Derived there from the trials, it is the one that the tuning found.
  EXPECT_EQ(winners(there_)[0], winners(here_)[0]);
  EXPECT_EQ(exported(there_), read_file(path));

  const auto again = there_.run({"import", path, "--json"}).document();
  EXPECT_EQ(again["added"], 0);
  EXPECT_EQ(again["known"], trials);
  EXPECT_EQ(again["winners_changed"], 0);
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
  ASSERT_EQ(there_.run({"import", here_.cache_dir() + "/tuning.db"}).exit_code, 0);
  const CliResult known =
      there_.run({"tune", "--rows", "8", "--cols", "512", "--device", "cpu", "--json"});
  ASSERT_EQ(known.exit_code, 0) << known.err;
  EXPECT_EQ(known.document()["statistics"]["trials"], 0);
}

TEST_F(CliTrials, ExportFiltersByDevice) {
  const CliResult none = here_.run({"export", "--device", "no such device"});
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_EQ(lines_in(none.out), 2);
  EXPECT_THAT(none.err, HasSubstr("0 trials from"));
}

TEST_F(CliTrials, ExportWithJsonNeedsOut) {
  const CliResult result = here_.run({"export", "--json"});
  EXPECT_EQ(result.exit_code, kUsage);
  EXPECT_THAT(result.err, HasSubstr("needs --out FILE"));
}

TEST_F(CliTrials, ExportReportsUnwritablePaths) {
  const CliResult result = here_.run({"export", "--out", file("no/such/folder/x.jsonl")});
  EXPECT_EQ(result.exit_code, kFailed);
  EXPECT_THAT(result.err, HasSubstr("no/such/folder/x.jsonl: No such file or directory"));
}

TEST_F(CliTrials, ExportMergesFilesInAnyOrder) {
  ASSERT_EQ(there_.run({"tune", "--rows", "8", "--cols", "1024", "--device", "cpu"}).exit_code, 0);
  write_file(file("here.jsonl"), exported(here_));
  const std::string there = there_.cache_dir() + "/tuning.db";
  const CliResult merged = here_.run({"export", "--out", file("one.jsonl"), "--from",
                                      file("here.jsonl"), "--from", there, "--json"});
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_EQ(merged.document()["winners"], 2);
  ASSERT_EQ(here_
                .run({"export", "--out", file("here.jsonl"), "--from", there, "--from",
                      file("here.jsonl"), "--from", there})
                .exit_code,
            0)
      << "text may be put in the place of what it was made of";
  EXPECT_EQ(read_file(file("one.jsonl")), read_file(file("here.jsonl")));
  EXPECT_EQ(here_.run({"doctor", file("one.jsonl")}).exit_code, 0);

  const std::string here = here_.cache_dir() + "/tuning.db";
  const std::vector<std::vector<std::string>> onto_databases = {
      {"export", "--out", there, "--from", there}, {"export", "--out", here}};
  for (const auto& command : onto_databases) {
    EXPECT_EQ(here_.run(command).exit_code, kUsage);
    EXPECT_EQ(here_.run({"doctor", command[2]}).exit_code, 0) << "it must still be a database";
  }
}

TEST_F(CliTrials, BadLinesAreNamedAndSkipped) {
  std::string text = exported(here_);
  const std::size_t second = text.find('\n') + 1;
  text.replace(second, text.find('\n', second) - second, "no trial");
  write_file(file("bad.jsonl"), text);
  const CliResult imported = there_.run({"import", file("bad.jsonl"), "--json"});
  EXPECT_EQ(imported.exit_code, 0);
  EXPECT_THAT(imported.err, HasSubstr("bad.jsonl:2: skipped: it is not a JSON object"));
  EXPECT_EQ(imported.document()["added"], lines_in(text) - 3);
  EXPECT_EQ(imported.document()["files"][0]["bad"], 1);

  const CliResult verified = here_.run({"doctor", file("bad.jsonl")});
  EXPECT_EQ(verified.exit_code, kFailed);
  EXPECT_THAT(verified.out, HasSubstr("1 bad line"));
  EXPECT_THAT(verified.out, HasSubstr("bad.jsonl:2: it is not a JSON object"));
  EXPECT_EQ(here_.run({"doctor", file("bad.jsonl"), "--json"}).document()["good"], false);
}

TEST_F(CliTrials, TruncatedFileIsRefusedWithoutPartial) {
  const std::string text = exported(here_);
  const std::size_t third = text.find('\n', text.find('\n') + 1) + 1;
  write_file(file("cut.jsonl"), text.substr(0, third + 10));
  const std::string cut = file("cut.jsonl");
  const std::vector<std::vector<std::string>> commands = {
      {"import", cut},
      {"export", "--out", file("whole.jsonl"), "--from", cut},
      {"report", "--json", "--from", cut}};
  for (std::vector<std::string> command : commands) {
    const CliResult refused = there_.run(command);
    EXPECT_EQ(refused.exit_code, kFailed) << command[0];
    EXPECT_THAT(refused.err, HasSubstr("cut.jsonl is damaged: it has no closing line"));
    EXPECT_THAT(refused.err, HasSubstr("--partial"));
    command.emplace_back("--partial");
    const CliResult taken = there_.run(command);
    EXPECT_EQ(taken.exit_code, 0) << command[0] << taken.err;
    EXPECT_THAT(taken.err, HasSubstr("cut.jsonl: it has no closing line"));
  }
  EXPECT_FALSE(std::filesystem::exists(file("cut.jsonl.tmp")));
  EXPECT_EQ(here_.run({"doctor", file("whole.jsonl")}).exit_code, 0)
      << "what export writes is whole";
  const CliResult verified = here_.run({"doctor", cut, "--json"});
  EXPECT_EQ(verified.exit_code, kFailed);
  EXPECT_EQ(verified.document()["trials"], 1);
  EXPECT_THAT(verified.document()["damage"], HasSubstr("closing line"));
}

TEST_F(CliTrials, ExportWritesThroughLinksAndIntoPipes) {
  write_file(file("target.jsonl"), "what was there");
  std::filesystem::create_symlink(file("target.jsonl"), file("link.jsonl"));
  ASSERT_EQ(here_.run({"export", "--out", file("link.jsonl")}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(file("link.jsonl")));
  EXPECT_EQ(read_file(file("target.jsonl")), exported(here_));
  const CliResult full = here_.run({"export", "--out", "/dev/full"});
  EXPECT_EQ(full.exit_code, kFailed);
  EXPECT_THAT(full.err, HasSubstr("cannot write /dev/full: No space left on device"));
  EXPECT_THAT(full.err, testing::Not(HasSubstr("DORAJIT_CACHE_DIR")));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(CliTrials, FilesOfOtherFormatsAreRefused) {
  write_file(file("other.txt"), "hello\n");
  for (const std::string& path : {file("other.txt"), file("missing.jsonl"), here_.folder()}) {
    for (const char* command : {"import", "doctor"}) {
      const CliResult result = there_.run({command, path});
      EXPECT_EQ(result.exit_code, kFailed) << path;
      EXPECT_THAT(result.err, HasSubstr(path));
      EXPECT_THAT(result.out, IsEmpty());
    }
  }
  EXPECT_THAT(winners(there_), IsEmpty());
}

TEST_F(CliTrials, DamagedDatabaseIsReportedAndUnchanged) {
  const std::string database = here_.cache_dir() + "/tuning.db";
  EXPECT_EQ(here_.run({"doctor", database}).exit_code, 0);
  const std::string bytes = read_file(database);
  const std::string half = bytes.substr(0, bytes.size() / 2);
  write_file(database, half);
  const CliResult damaged = here_.run({"doctor", database, "--json"});
  EXPECT_EQ(damaged.exit_code, kFailed);
  EXPECT_EQ(damaged.document()["good"], false);
  EXPECT_NE(damaged.document()["damage"], "");
  EXPECT_EQ(read_file(database), half);
  EXPECT_EQ(there_.run({"import", database}).exit_code, kFailed);
}

TEST_F(CliTrials, RebuildFindsTheSameWinners) {
  const auto before = winners(here_);
  const CliResult rebuilt = here_.run({"import", "--rebuild", "--json"});
  ASSERT_EQ(rebuilt.exit_code, 0) << rebuilt.err;
  EXPECT_EQ(rebuilt.document()["winners"], 1);
  EXPECT_EQ(winners(here_)[0]["config"], before[0]["config"]);
  EXPECT_EQ(winners(here_)[0]["median_ns"], before[0]["median_ns"]);
}

TEST(CliImport, UnwritableDatabaseFails) {
  const CliSandbox sandbox;
  const CliResult rebuilt = sandbox.run({"import", "--rebuild", "--cache-dir", "/dev/null/cache"});
  EXPECT_EQ(rebuilt.exit_code, kFailed);
  EXPECT_THAT(rebuilt.err, HasSubstr("cannot be written"));
  write_file(sandbox.folder() + "/x.jsonl",
             "{\"format\":\"dorajit-trials\",\"version\":1}\n"
             "{\"end\":\"dorajit-trials\",\"trials\":0}\n");
  const CliResult imported =
      sandbox.run({"import", sandbox.folder() + "/x.jsonl", "--cache-dir", "/dev/null/cache"});
  EXPECT_EQ(imported.exit_code, kFailed);
  EXPECT_THAT(imported.err, HasSubstr("nothing was imported"));
}

}  // namespace
}  // namespace dorajit::test
