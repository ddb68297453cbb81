// Results of tuning: trials (measurements) and the winners that follow from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kernel_templates/config.h"

namespace dorajit::cache {

// Called with the amount done, from the working thread. May be empty.
using Progress = std::function<void(std::int64_t done, std::int64_t in_all)>;

inline void report(const Progress& progress, std::int64_t done, std::int64_t in_all) {
  if (progress) progress(done, in_all);
}

// What a measurement depends on besides problem and device.
struct Environment {
  std::string driver;     // driver version
  std::string policy;     // measurement policy
  std::string space;      // hash of the searched space
  std::string tuner;      // tuner version
  std::string templates;  // hash of the kernel templates

  friend bool operator==(const Environment&, const Environment&) = default;
};

struct EnvironmentText {
  const char* name;
  std::string Environment::* member;
};
// The texts under the names that files and documents have for them.
inline constexpr EnvironmentText kEnvironmentTexts[] = {{"driver", &Environment::driver},
                                                        {"policy", &Environment::policy},
                                                        {"space", &Environment::space},
                                                        {"tuner", &Environment::tuner},
                                                        {"templates", &Environment::templates}};

enum class Verdict {
  kOk,
  kWrongBits,
  kFailedToCompile,
  kFailedToLaunch,
  kSpills,
  kOutOfBounds,   // wrote outside of its outputs
  kDidNotFinish,  // a process crashed or was killed during its first launch or compilation
};

// Stable names, as stored in databases: "ok", "wrong_bits", "failed_to_compile", ...
std::string_view name(Verdict verdict);
std::optional<Verdict> parse_verdict(std::string_view name);

// Whether a config with that verdict must not be tried again on the same device with the same
// kernels, for any shape: it computed wrong bits, wrote out of bounds, failed to launch or did not
// finish. Configs that spill or do not compile are detected again without a launch.
bool is_bad(Verdict verdict);

// The time of a record that is made now, in seconds since 1970.
std::int64_t now_unix_s();

// The paired comparison of a config with the default of its run: the mean of log(config time /
// default time) over the rounds in which both were measured, and the standard error of that mean.
struct PairedComparison {
  double log_ratio = 0;
  double standard_error = 0;

  friend bool operator==(const PairedComparison&, const PairedComparison&) = default;
};

// One measured config. Trials are only added; two that are equal in every field are the same trial.
struct Trial {
  std::string problem;  // canonical problem key, "OP/bf16,bf16,f32,bf16/v8/c4096/r12"
  std::string device;   // device fingerprint
  Environment environment;
  kernels::Config config{};
  kernels::Config default_config{};              // the default that it was compared with in its run
  std::optional<PairedComparison> comparison{};  // only of the config in the final comparison
  Verdict verdict = Verdict::kOk;
  double median_ns = 0;  // NaN if nothing was measured
  double mad_ns = 0;
  int samples = 0;
  std::int64_t created_unix_s = 0;
  std::string host{};
};

// The config that a problem should run on a device: one per pair, the last one recorded.
struct Winner {
  std::string problem;
  std::string device;
  Environment environment;
  kernels::Config config{};
  kernels::Config default_config{};
  double median_ns = 0;
  double default_median_ns = 0;
  std::int64_t created_unix_s = 0;
};

// A hash of every field, typed and delimited. Stored with the row; it identifies a trial.
std::int64_t checksum(const Trial& trial);
std::int64_t checksum(const Winner& winner);

// The values that a trial or winner may have, wherever it was read.
inline constexpr std::size_t kMaxTextBytes = 1024;
inline constexpr std::int64_t kMaxSamples = 1'000'000'000;
inline constexpr std::int64_t kMaxUnixSeconds = 253'402'300'799;  // the year 9999

// What is wrong with a text or a number of the record; empty if nothing is. Texts are shown on
// terminals, so they must be printable lines (runtime/base/printable_text.h).
std::string fault_of(const Trial& trial);
std::string fault_of(const Winner& winner);

// The latest valid time stamp, in seconds since 1970: a day ahead of this machine's clock.
std::int64_t latest_plausible_time();

// Whether two fingerprints are equal but for the GiB at their end, and these by at most an eighth.
// GPUs of one model report different memory, by driver, ECC and board: A100 40GB 39.39 to 39.59
// GiB. Models of one name with different memory (8 and 12 GiB) are further apart.
bool is_same_model(std::string_view one, std::string_view other);

// How far the memory of two such fingerprints is apart, in GiB.
int memory_apart(std::string_view one, std::string_view other);

// A range of texts with the fingerprints of a device's model, for queries; not all of it is of that
// model.
std::pair<std::string, std::string> range_of_model(std::string_view fingerprint);

}  // namespace dorajit::cache
