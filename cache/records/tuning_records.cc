#include "cache/records/tuning_records.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "kernel_templates/config_text.h"
#include "runtime/base/hash.h"

namespace dorajit::cache {
namespace {

struct VerdictEntry {
  Verdict verdict;
  std::string_view name;
  bool is_bad;
};
constexpr VerdictEntry kVerdicts[] = {{Verdict::kOk, "ok", false},
                                      {Verdict::kWrongBits, "wrong_bits", true},
                                      {Verdict::kFailedToCompile, "failed_to_compile", false},
                                      {Verdict::kFailedToLaunch, "failed_to_launch", true},
                                      {Verdict::kSpills, "spills", false},
                                      {Verdict::kOutOfBounds, "out_of_bounds", true},
                                      {Verdict::kDidNotFinish, "did_not_finish", true}};

static_assert(std::size(kVerdicts) == std::to_underlying(Verdict::kDidNotFinish) + 1);

// The table has the order of the enumeration.
const VerdictEntry& entry_of(Verdict verdict) { return kVerdicts[std::to_underlying(verdict)]; }

// SQLite stores only one NaN (as NULL) and one zero, so the checksum must treat all NaNs and both
// zeros alike.
std::int64_t bits(double value) {
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
  if (value == 0) value = 0;
  return std::bit_cast<std::int64_t>(value);
}

void add(Hasher& hasher, const Environment& environment) {
  for (const auto& [name, member] : kEnvironmentTexts) hasher.add(name, environment.*member);
}

std::int64_t finish(const Hasher& hasher) {
  return static_cast<std::int64_t>(hash64(hasher.digest()));
}

}  // namespace

std::string_view name(Verdict verdict) { return entry_of(verdict).name; }

std::optional<Verdict> parse_verdict(std::string_view text) {
  const auto* const found = std::ranges::find(kVerdicts, text, &VerdictEntry::name);
  return found == std::end(kVerdicts) ? std::nullopt : std::optional(found->verdict);
}

std::int64_t now_unix_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

bool is_bad(Verdict verdict) { return entry_of(verdict).is_bad; }

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
