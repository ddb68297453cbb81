#include "cache/records/tuning_records.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <format>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "kernel_templates/config.h"
#include "runtime/base/hash.h"
#include "runtime/base/printable_text.h"

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

std::string fault_of_text(std::string_view name, const std::string& text) {
  if (text.size() > kMaxTextBytes) {
    return std::format("\"{}\" is longer than {} bytes", name, kMaxTextBytes);
  }
  if (!is_printable_line(text)) {
    return std::format("\"{}\" has characters that cannot be printed", name);
  }
  return {};
}

template <class Record>
std::string fault_of_texts(const Record& record) {
  std::string fault = fault_of_text("device", record.device);
  if (fault.empty()) fault = fault_of_text("problem", record.problem);
  for (const auto& [name, member] : kEnvironmentTexts) {
    if (fault.empty()) fault = fault_of_text(name, record.environment.*member);
  }
  return fault;
}

std::string fault_of_time(std::int64_t created_unix_s) {
  if (created_unix_s >= 0 && created_unix_s <= kMaxUnixSeconds) return {};
  return std::format("\"created_unix_s\" is not from 0 to {}", kMaxUnixSeconds);
}

constexpr std::string_view kUnit = " GiB";

struct Parts {
  std::string_view model;  // with the slash at its end
  int gib;
};

// Nothing for a fingerprint without memory, as of a CPU.
std::optional<Parts> parts_of(std::string_view fingerprint) {
  if (!fingerprint.ends_with(kUnit)) return std::nullopt;
  const std::size_t begin = fingerprint.rfind('/') + 1;
  const std::string_view number =
      fingerprint.substr(begin, fingerprint.size() - kUnit.size() - begin);
  int gib = 0;
  const auto [end, error] = std::from_chars(number.begin(), number.end(), gib);
  if (begin == 0 || error != std::errc() || end != number.end() || gib < 0) return std::nullopt;
  return Parts{.model = fingerprint.substr(0, begin), .gib = gib};
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

std::string fault_of(const Trial& trial) {
  if (auto fault = fault_of_texts(trial); !fault.empty()) return fault;
  if (auto fault = fault_of_text("host", trial.host); !fault.empty()) return fault;
  if (trial.samples < 0 || trial.samples > kMaxSamples) {
    return std::format("\"samples\" is not from 0 to {}", kMaxSamples);
  }
  return fault_of_time(trial.created_unix_s);
}

std::string fault_of(const Winner& winner) {
  if (auto fault = fault_of_texts(winner); !fault.empty()) return fault;
  return fault_of_time(winner.created_unix_s);
}

std::int64_t latest_plausible_time() {
  constexpr std::int64_t kDay = 86400;
  return now_unix_s() + kDay;
}

bool is_same_model(std::string_view one, std::string_view other) {
  if (one == other) return true;
  const auto first = parts_of(one);
  const auto second = parts_of(other);
  return first && second && first->model == second->model &&
         std::abs(first->gib - second->gib) <= std::max(first->gib, second->gib) / 8;
}

int memory_apart(std::string_view one, std::string_view other) {
  const auto first = parts_of(one);
  const auto second = parts_of(other);
  return first && second ? std::abs(first->gib - second->gib) : 0;
}

std::pair<std::string, std::string> range_of_model(std::string_view fingerprint) {
  const auto parts = parts_of(fingerprint);
  if (!parts) return {std::string(fingerprint), std::string(fingerprint)};
  // ':' is the character after '9'.
  return {std::string(parts->model), std::string(parts->model) + ':'};
}

}  // namespace dorajit::cache
