// What tuning found out: facts (trials) and what follows from them (winners).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernel_templates/config.h"

namespace dorajit::cache {

// What besides problem and device a measurement depends on.
struct Environment {
  std::string driver;     // driver version
  std::string policy;     // measurement policy
  std::string space;      // hash of the space searched
  std::string tuner;      // tuner version
  std::string templates;  // hash of the kernel templates

  friend bool operator==(const Environment&, const Environment&) = default;
};

enum class Verdict {
  kOk,
  kWrongBits,
  kFailedToCompile,
  kFailedToLaunch,
  kSpills,
  kOutOfBounds,   // wrote what was not its to write
  kDidNotFinish,  // a process died or was killed during its first launch
};

// Stable names, as they stand in databases: "ok", "wrong_bits", "failed_to_compile", ...
std::string_view name(Verdict verdict);
std::optional<Verdict> parse_verdict(std::string_view name);

// Whether a config with that verdict is not to be tried again on the same device by the same
// kernels, whatever the shape: it computed wrong bits, wrote out of bounds, failed to launch or did
// not finish. One that spills or does not compile is found out without launching it.
bool is_bad(Verdict verdict);

// The duel of a config with the default of its run: what the logarithm of its time over the
// default's was, on average over the rounds in which both were measured, and that mean's standard
// error.
struct Duel {
  double log_ratio = 0;
  double standard_error = 0;

  friend bool operator==(const Duel&, const Duel&) = default;
};

// One measured config. Trials are only ever added; two that agree in every field are one fact.
struct Trial {
  std::string problem;  // canonical problem key, "OP/bf16,bf16,f32,bf16/v8/c4096/r12"
  std::string device;   // device fingerprint
  Environment environment;
  kernels::Config config{};
  kernels::Config default_config{};  // what it was compared with in its run
  std::optional<Duel> duel{};        // of the config that met the default alone
  Verdict verdict = Verdict::kOk;
  double median_ns = 0;  // NaN where there was nothing to measure
  double mad_ns = 0;
  int samples = 0;
  std::int64_t created_unix_s = 0;
  std::string host;
};

// What a problem should run on a device: one per pair, the last recorded.
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

// Over every field, typed and delimited. Stored beside the row, and the identity of a trial.
std::int64_t checksum(const Trial& trial);
std::int64_t checksum(const Winner& winner);

}  // namespace dorajit::cache
