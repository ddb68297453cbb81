#include "cache/records/tuning_records.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "tests/cache/records/sample_records.h"

namespace dorajit::cache {
namespace {

TEST(TuningRecords, VerdictNamesRoundTrip) {
  for (const auto verdict :
       {Verdict::kOk, Verdict::kWrongBits, Verdict::kFailedToCompile, Verdict::kFailedToLaunch,
        Verdict::kSpills, Verdict::kOutOfBounds, Verdict::kDidNotFinish}) {
    EXPECT_EQ(parse_verdict(name(verdict)), verdict);
  }
  EXPECT_EQ(name(Verdict::kFailedToCompile), "failed_to_compile");
  EXPECT_FALSE(parse_verdict("fine"));
}

TEST(TuningRecords, EveryFieldOfATrialChangesItsChecksum) {
  const std::vector<std::function<void(Trial&)>> changes = {
      [](Trial&) {},
      [](Trial& t) { t.problem += 'x'; },
      [](Trial& t) { t.device += 'x'; },
      [](Trial& t) { t.environment.driver += 'x'; },
      [](Trial& t) { t.environment.policy += 'x'; },
      [](Trial& t) { t.environment.space += 'x'; },
      [](Trial& t) { t.environment.tuner += 'x'; },
      [](Trial& t) { t.environment.templates += 'x'; },
      [](Trial& t) { t.config.set('u', 2); },
      [](Trial& t) { t.default_config = t.config; },
      [](Trial& t) { t.comparison = {.log_ratio = 0, .standard_error = 0}; },
      [](Trial& t) { t.verdict = Verdict::kSpills; },
      [](Trial& t) { t.median_ns += 1e-9; },
      [](Trial& t) { t.mad_ns += 1e-9; },
      [](Trial& t) { ++t.samples; },
      [](Trial& t) { ++t.created_unix_s; },
      [](Trial& t) { t.host += 'x'; },
  };
  std::set<std::int64_t> checksums;
  for (const auto& change : changes) {
    Trial trial = sample_trial(0, 0);
    change(trial);
    checksums.insert(checksum(trial));
  }
  EXPECT_EQ(checksums.size(), changes.size());
}

TEST(TuningRecords, ChecksumDelimitsFields) {
  Trial a = sample_trial(0, 0);
  Trial b = a;
  a.environment.driver = "12";
  a.environment.policy = "3";
  b.environment.driver = "1";
  b.environment.policy = "23";
  EXPECT_NE(checksum(a), checksum(b));
}

TEST(TuningRecords, NumbersThatSqliteStoresAlikeHaveTheSameChecksum) {
  Trial a = sample_trial(0, 0);
  Trial b = a;
  a.median_ns = std::numeric_limits<double>::quiet_NaN();
  b.median_ns = -std::nan("7");
  a.mad_ns = 0.0;
  b.mad_ns = -0.0;
  EXPECT_EQ(checksum(a), checksum(b));
}

}  // namespace
}  // namespace dorajit::cache
