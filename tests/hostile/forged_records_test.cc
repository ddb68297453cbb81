// Trials and winners with valid checksums and contents that no tuning writes, and incomplete text
// files, as after a full disk or an interrupted transfer.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "cache/database/overlay_databases.h"
#include "cache/database/trial_files.h"
#include "cache/database/tuning_store.h"
#include "cache/records/pins.h"
#include "cache/records/trial_lines.h"
#include "cache/records/winner_choice.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

constexpr std::int64_t kYear = std::int64_t{365} * 86'400;

std::int64_t now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

const std::vector<std::string>& bad_texts() {
  static const std::vector<std::string> texts = {
      "\x1b[2Jcleared", "two\nlines", "bell\a",        std::string("zero\0", 5), "\u009b31m",
      "\u202egnol",     "\x7f",       "\xff no UTF-8", std::string(5000, 'x')};
  return texts;
}

// The trials of a run at that time: the default, and a config that is twice as fast.
std::vector<Trial> run_at(std::int64_t time, int winner, const std::string& templates) {
  std::vector<Trial> trials;
  for (const int config : {0, winner}) {
    Trial trial = sample_trial(1, config);
    trial.default_config = sample_config(0);
    trial.environment.templates = templates;
    trial.median_ns = config == 0 ? 1000 : 500;
    trial.created_unix_s = time;
    trial.host = "host";
    trials.push_back(trial);
  }
  return trials;
}

TEST(ForgedRecords, LinesWithControlCharactersAreSkipped) {
  for (const std::string& text : bad_texts()) {
    for (std::string Trial::* field : {&Trial::device, &Trial::problem, &Trial::host}) {
      Trial forged = sample_trial(1, 0);
      forged.*field = text;
      const std::vector<Trial> trials = {forged, sample_trial(1, 1)};
      const TrialText lines = to_lines(trials);
      const auto parsed = parse_lines(lines.lines);
      ASSERT_TRUE(parsed);
      ASSERT_EQ(parsed->trials.size(), 1U) << text;
      EXPECT_EQ(checksum(parsed->trials[0]), checksum(trials[1]));
      EXPECT_EQ(parsed->bad_count + lines.left_out, 1);
    }
  }
}

TEST(ForgedRecords, DatabaseRowsWithControlCharactersAreSkipped) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  for (const std::string& text : bad_texts()) {
    Trial trial = sample_trial(1, 0);
    trial.host = text;
    Winner winner = sample_winner(1);
    winner.device = text;
    store->record(std::vector{trial}, winner);
  }
  store->record(sample_trials(2, 3), sample_winner(2));
  const std::string path = directory.file("tuning.db");
  const auto fresh = TuningStore::open(directory.path());
  EXPECT_EQ(fresh->trials().size(), 3U);
  EXPECT_EQ(fresh->winners().size(), 1U);
  const auto file = read_trial_file(path);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->trials.size(), 3U);
  EXPECT_EQ(file->winners, 1);
  EXPECT_EQ(count_overlay_winners(path), 1);
}

TEST(ForgedRecords, TrialsFromTheFutureAreNotImported) {
  const TemporaryDirectory directory;
  std::vector<Trial> trials = run_at(now() + kYear, 1, "old");
  for (const Trial& trial : run_at(now(), 2, "new")) trials.push_back(trial);
  const auto parsed = parse_lines(to_lines(trials).lines);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->trials.size(), 2U);
  ASSERT_EQ(parsed->bad.size(), 2U);
  EXPECT_EQ(parsed->bad[0].reason, "\"created_unix_s\" is in the future: a clock was or is wrong");

  TuningStore::open(directory.path())->merge(trials);
  const auto file = read_trial_file(directory.file("tuning.db"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->trials.size(), 2U);
  EXPECT_EQ(file->bad_count, 2);
}

// Imported by an older dorajit, or measured while this machine's clock was wrong.
TEST(ForgedRecords, TrialFromTheFutureDoesNotOverrideNewerRuns) {
  std::vector<Trial> trials = run_at(now() + 10 * kYear, 1, "old");
  ASSERT_TRUE(choose_winner(trials)) << "the only run decides";
  EXPECT_EQ(choose_winner(trials)->config, sample_config(1));
  for (const Trial& trial : run_at(now() - kYear, 2, "new")) trials.push_back(trial);
  EXPECT_EQ(choose_winner(trials)->config, sample_config(2));

  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  store->merge(trials);
  store->rebuild_winners();
  ASSERT_EQ(store->winners().size(), 1U);
  EXPECT_EQ(store->winners()[0].environment.templates, "new");
}

TEST(ForgedRecords, ClockAFewHoursAheadIsAccepted) {
  EXPECT_EQ(parse_lines(to_lines(run_at(now() + 7200, 1, "t")).lines)->trials.size(), 2U);
}

TEST(CutFiles, TruncatedExportIsIncomplete) {
  const std::string whole = to_lines(sample_trials(1, 3)).lines;
  ASSERT_EQ(parse_lines(whole)->damage, "");
  // Except for the last newline, which carries no information.
  for (std::size_t size = 0; size + 1 < whole.size(); ++size) {
    const auto parsed = parse_lines(std::string_view(whole).substr(0, size));
    EXPECT_TRUE(!parsed || !parsed->damage.empty()) << size << " bytes";
  }
}

TEST(CutFiles, ExportWithoutOneLineIsIncomplete) {
  const std::string whole = to_lines(sample_trials(1, 3)).lines;
  for (std::size_t line = whole.find('\n') + 1; line < whole.size();) {
    const std::size_t end = whole.find('\n', line) + 1;
    const std::string shorter = whole.substr(0, line) + whole.substr(end);
    EXPECT_NE(parse_lines(shorter)->damage, "") << shorter;
    line = end;
  }
}

TEST(CutFiles, TextAfterTheClosingLineIsDamage) {
  const std::string whole = to_lines(sample_trials(1, 3)).lines;
  const auto twice = parse_lines(whole + to_lines(sample_trials(2, 2)).lines);
  EXPECT_NE(twice->damage, "");
  EXPECT_EQ(twice->trials.size(), 5U) << "with --partial";
  EXPECT_NE(parse_lines(whole + "\n")->damage, "");
}

TEST(CutFiles, TruncatedLockFileIsRefused) {
  const std::string whole = to_pin_text(std::vector<Pin>{{.device = kDevice,
                                                          .problem = sample_problem(1),
                                                          .config = sample_config(1),
                                                          .compiler = "c",
                                                          .artifact = "a",
                                                          .code = "x"},
                                                         {.device = kDevice,
                                                          .problem = sample_problem(2),
                                                          .config = sample_config(2),
                                                          .compiler = {},
                                                          .artifact = {},
                                                          .code = {}}});
  ASSERT_TRUE(parse_pin_text(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse_pin_text(std::string_view(whole).substr(0, size))) << size << " bytes";
  }
}

}  // namespace
}  // namespace dorajit::cache
