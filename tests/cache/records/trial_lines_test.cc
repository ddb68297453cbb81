#include "cache/records/trial_lines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <format>
#include <limits>

#include "cache/database/trial_files.h"
#include "cache/database/tuning_store.h"
#include "tests/cache/database/raw_database.h"
#include "tests/cache/records/random_trials.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

const std::string kHeader = "{\"format\":\"dorajit-trials\",\"version\":1}\n";

std::string closing(int trials) {
  return std::format("{{\"end\":\"dorajit-trials\",\"trials\":{}}}\n", trials);
}

std::vector<std::int64_t> checksums(const std::vector<Trial>& trials) {
  std::vector<std::int64_t> sums;
  for (const Trial& trial : trials) sums.push_back(checksum(trial));
  std::ranges::sort(sums);
  return sums;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Trial odd_trial() {
  Trial trial = sample_trial(1, 1);
  trial.verdict = Verdict::kFailedToLaunch;
  trial.median_ns = trial.mad_ns = std::numeric_limits<double>::quiet_NaN();
  trial.samples = 0;
  trial.host = std::string("quote\"\\\xc3\xa9");
  return trial;
}

TEST(TrialLines, FieldsRoundTrip) {
  Trial named = sample_trial(1, 2);
  named.default_config = sample_config(0);
  named.median_ns = 1.0 / 3;
  named.comparison = {.log_ratio = -0.1 / 3, .standard_error = 1e-300};
  const std::vector<Trial> trials = {sample_trial(1, 0), odd_trial(), named};
  const TrialText text = to_lines(trials);
  EXPECT_EQ(text.trials, 3);
  EXPECT_EQ(text.left_out, 0);
  EXPECT_EQ(std::ranges::count(text.lines, '\n'), 5);
  const auto parsed = parse_lines(text.lines);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->bad_count, 0);
  EXPECT_EQ(parsed->damage, "");
  EXPECT_EQ(checksums(parsed->trials), checksums(trials));
}

TEST(TrialLines, SameTrialsGiveTheSameText) {
  RandomTrials random(3);
  std::vector<Trial> trials = random.runs(20, 4);
  const std::string text = to_lines(trials).lines;
  trials.insert(trials.end(), trials.begin(), trials.begin() + 10);
  std::ranges::shuffle(trials, random.generator());
  EXPECT_EQ(to_lines(trials).lines, text);
}

TEST(TrialLines, NoTrialsGiveAHeaderAndAClosingLine) {
  EXPECT_EQ(to_lines({}).lines, kHeader + closing(0));
  EXPECT_TRUE(parse_lines(kHeader + closing(0))->trials.empty());
  EXPECT_EQ(parse_lines(kHeader + closing(0))->damage, "");
}

TEST(TrialLines, TrialsThatJsonCannotRepresentAreLeftOut) {
  Trial trial = sample_trial(1, 0);
  trial.host = "\xff\xfe";
  Trial endless = sample_trial(1, 0);
  endless.median_ns = std::numeric_limits<double>::infinity();
  const TrialText text = to_lines(std::vector{trial, endless, sample_trial(1, 1)});
  EXPECT_EQ(text.trials, 1);
  EXPECT_EQ(text.left_out, 2);
}

TEST(TrialLines, InvalidLineIsNamedAndTheOthersAreRead) {
  const std::vector<Trial> one = {sample_trial(1, 0)};
  const std::string good = to_lines(one).lines.substr(
      kHeader.size(), to_lines(one).lines.size() - kHeader.size() - closing(1).size());
  const std::string bad_lines[] = {
      "\n",
      "not json\n",
      "[]\n",
      "{}\n",
      good.substr(0, good.size() / 2) + "\n",
      replaced(good, "1234.5", "1"),
      replaced(good, "\"samples\":30", "\"samples\":31"),
      replaced(good, "\"samples\":30", "\"samples\":-30"),
      replaced(good, "\"samples\":30", "\"samples\":30.0"),
      replaced(good, "\"samples\":30", "\"samples\":99999999999"),
      replaced(good, "\"samples\":30", "\"samples\":\"30\""),
      replaced(good, "\"verdict\":\"ok\"", "\"verdict\":\"fine\""),
      replaced(good, "\"config\":\"b", "\"config\":\"x"),
      replaced(good, "\"samples\"", "\"log_ratio\":-0.1,\"samples\""),
      replaced(good, "\"samples\"", "\"log_ratio\":-0.1,\"log_ratio_error\":1,\"samples\""),
      replaced(good, "\"default_config\":\"", "\"default_config\":\"x"),
      replaced(good, "\"default_config\"", "\"default\""),
      replaced(good, "\"host\"", "\"unknown\":1,\"host\""),
      replaced(good, "\"host\":\"", "\"host\":\"" + std::string(2000, 'x')),
      replaced(good, "}", "," + std::string(20'000, ' ') + "}"),
      replaced(good, "\"checksum\":\"", "\"checksum\":\"0"),
  };
  for (const std::string& bad : bad_lines) {
    const auto parsed = parse_lines(kHeader + good + bad + good + closing(3));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->trials.size(), 2U) << bad;
    ASSERT_EQ(parsed->bad.size(), 1U) << bad;
    EXPECT_EQ(parsed->bad_count, 1);
    EXPECT_EQ(parsed->bad[0].number, 3);
    EXPECT_FALSE(parsed->bad[0].reason.empty());
    EXPECT_EQ(parsed->damage, "");
  }
}

TEST(TrialLines, OnlyTheFirstInvalidLinesAreNamed) {
  std::string text = kHeader;
  for (int i = 0; i < 1000; ++i) text += "x\n";
  const auto parsed = parse_lines(text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->bad_count, 1000);
  EXPECT_EQ(parsed->bad.size(), kMaxBadLinesNamed);
}

TEST(TrialLines, LastLineWithoutANewlineIsRead) {
  std::string text = to_lines(std::vector{sample_trial(1, 0)}).lines;
  text.pop_back();
  EXPECT_EQ(parse_lines(text)->trials.size(), 1U);
  EXPECT_EQ(parse_lines(text)->damage, "");
}

TEST(TrialLines, FilesWithoutTheHeaderAreRefused) {
  for (const std::string header :
       {"", "\n", "hello\n", "{}\n", "{\"format\":\"other\"}\n",
        "{\"format\":\"dorajit-trials\"}\n", "{\"format\":\"dorajit-trials\",\"version\":0}\n"}) {
    EXPECT_FALSE(parse_lines(header)) << header;
  }
  const auto newer = parse_lines("{\"format\":\"dorajit-trials\",\"version\":2}\n");
  ASSERT_FALSE(newer);
  EXPECT_NE(newer.error().message.find("update dorajit"), std::string::npos);
}

TEST(TrialFiles, LinesAndDatabasesGiveTheSameTrials) {
  const TemporaryDirectory directory;
  const std::vector<Trial> trials = RandomTrials(5).runs(6, 2);
  TuningStore::open(directory.path())->merge(trials);
  ASSERT_TRUE(write_trial_file(directory.file("trials.jsonl"), trials));
  const auto lines = read_trial_file(directory.file("trials.jsonl"));
  const auto database = read_trial_file(directory.file("tuning.db"));
  ASSERT_TRUE(lines) << lines.error().message;
  ASSERT_TRUE(database) << database.error().message;
  EXPECT_EQ(lines->kind, TrialFileKind::kLines);
  EXPECT_EQ(database->kind, TrialFileKind::kDatabase);
  EXPECT_GT(database->winners, 0);
  EXPECT_TRUE(lines->is_complete());
  EXPECT_TRUE(database->is_complete());
  EXPECT_EQ(checksums(lines->trials), checksums(database->trials));
}

TEST(TrialFiles, DamageIsReported) {
  const TemporaryDirectory directory;
  TuningStore::open(directory.path())->record(sample_trials(1, 5), sample_winner(1));
  const std::string path = directory.file("tuning.db");
  RawDatabase(path).run(
      "UPDATE trials SET samples = 99 WHERE id = 2;"
      "UPDATE winners SET median_ns = 1.0; PRAGMA wal_checkpoint(TRUNCATE)");
  const auto altered = read_trial_file(path);
  ASSERT_TRUE(altered);
  EXPECT_EQ(altered->bad_count, 2);
  EXPECT_EQ(altered->trials.size(), 4U);
  EXPECT_FALSE(altered->is_complete());

  const std::string bytes = read_file(path);
  write_file(directory.file("half.db"), bytes.substr(0, bytes.size() / 2));
  const auto half = read_trial_file(directory.file("half.db"));
  ASSERT_TRUE(half);
  EXPECT_FALSE(half->damage.empty());
  EXPECT_FALSE(half->is_complete());
}

TEST(TrialFiles, UnreadableFileIsAnError) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(read_trial_file(directory.file("missing.jsonl")));
  EXPECT_FALSE(read_trial_file(directory.path()));
  write_file(directory.file("noise"), "noise");
  EXPECT_FALSE(read_trial_file(directory.file("noise")));
  TuningStore::open(directory.path());
  RawDatabase(directory.file("tuning.db")).run("PRAGMA user_version = 99");
  const auto newer = read_trial_file(directory.file("tuning.db"));
  ASSERT_FALSE(newer);
  EXPECT_NE(newer.error().message.find("newer dorajit"), std::string::npos);
}

}  // namespace
}  // namespace dorajit::cache
