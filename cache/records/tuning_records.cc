#include "cache/records/tuning_records.h"

#include <bit>
#include <cmath>
#include <limits>

#include "kernel_templates/config_text.h"
#include "runtime/base/hash.h"

namespace dorajit::cache {
namespace {

constexpr Verdict kVerdicts[] = {
    Verdict::kOk,     Verdict::kWrongBits,   Verdict::kFailedToCompile, Verdict::kFailedToLaunch,
    Verdict::kSpills, Verdict::kOutOfBounds, Verdict::kDidNotFinish};

// SQLite stores only one NaN (as NULL) and one zero, so the checksum must treat all NaNs and both
// zeros alike.
std::int64_t bits(double value) {
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
  if (value == 0) value = 0;
  return std::bit_cast<std::int64_t>(value);
}

void add(Hasher& hasher, const Environment& environment) {
  hasher.add("driver", environment.driver)
      .add("policy", environment.policy)
      .add("space", environment.space)
      .add("tuner", environment.tuner)
      .add("templates", environment.templates);
}

std::int64_t finish(const Hasher& hasher) {
  return static_cast<std::int64_t>(hash64(hasher.digest()));
}

}  // namespace

std::string_view name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWrongBits:
      return "wrong_bits";
    case Verdict::kFailedToCompile:
      return "failed_to_compile";
    case Verdict::kFailedToLaunch:
      return "failed_to_launch";
    case Verdict::kSpills:
      return "spills";
    case Verdict::kOutOfBounds:
      return "out_of_bounds";
    case Verdict::kDidNotFinish:
      return "did_not_finish";
  }
  return "unknown";
}

std::optional<Verdict> parse_verdict(std::string_view text) {
  for (const Verdict verdict : kVerdicts) {
    if (name(verdict) == text) return verdict;
  }
  return std::nullopt;
}

bool is_bad(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWrongBits:
    case Verdict::kOutOfBounds:
    case Verdict::kFailedToLaunch:
    case Verdict::kDidNotFinish:
      return true;
    case Verdict::kOk:
    case Verdict::kFailedToCompile:
    case Verdict::kSpills:
      return false;
  }
  return false;
}

std::int64_t checksum(const Trial& trial) {
  Hasher hasher("trial");
  hasher.add("device", trial.device).add("problem", trial.problem);
  add(hasher, trial.environment);
  hasher.add("config", kernels::to_text(trial.config))
      .add("verdict", name(trial.verdict))
      .add("median_ns", bits(trial.median_ns))
      .add("mad_ns", bits(trial.mad_ns))
      .add("samples", trial.samples)
      .add("created_unix_s", trial.created_unix_s)
      .add("host", trial.host)
      .add("default_config", kernels::to_text(trial.default_config));
  if (trial.comparison) {
    hasher.add("log_ratio", bits(trial.comparison->log_ratio))
        .add("log_ratio_error", bits(trial.comparison->standard_error));
  }
  return finish(hasher);
}

std::int64_t checksum(const Winner& winner) {
  Hasher hasher("winner");
  hasher.add("device", winner.device).add("problem", winner.problem);
  add(hasher, winner.environment);
  hasher.add("config", kernels::to_text(winner.config))
      .add("default_config", kernels::to_text(winner.default_config))
      .add("median_ns", bits(winner.median_ns))
      .add("default_median_ns", bits(winner.default_median_ns))
      .add("created_unix_s", winner.created_unix_s);
  return finish(hasher);
}

}  // namespace dorajit::cache
