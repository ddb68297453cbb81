// Tuning data by device: problems, their configs and how they compare.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/terminal/output.h"
#include "cache/records/tuning_records.h"
#include "runtime/launch/problem.h"

namespace dorajit::cli::report {

// Memory bandwidth of a device, from its maker's data sheet.
struct KnownBandwidth {
  std::string_view model;   // a part of the device's name
  double bytes_per_ns = 0;  // which is GB/s
};

// Traffic of a problem in the time of a config.
struct Roofline {
  std::int64_t bytes = 0;
  double bytes_per_ns = 0;
};

struct ProblemFindings {
  cache::Winner winner;
  std::optional<launch::Problem> problem;  // nothing for a key of another version
  std::vector<cache::Trial> trials;        // of the winner's run
  std::string source;                      // "user database", "h200.jsonl"
  bool is_for_these_kernels = false;       // measured with the kernel templates of this program
  double speedup = 1;                      // of the winner over the default config
  double speedup_error = 0;                // its standard error, from the spread of the samples
  std::int64_t age_s = 0;
  std::optional<Roofline> roofline;  // nothing where the measured rows are not known

  [[nodiscard]] bool keeps_default() const { return winner.config == winner.default_config; }
};

struct DeviceFindings {
  std::string fingerprint;
  std::optional<KnownBandwidth> memory;
  std::vector<ProblemFindings> problems;  // by variant, columns and rows
  std::int64_t trials = 0;                // all of the device
  std::int64_t bad_trials = 0;            // those with a verdict other than ok

  // Geometric mean of the speedups; 1 without problems.
  [[nodiscard]] double mean_speedup() const;
  [[nodiscard]] std::int64_t defaults_kept() const;
};

// A database or a file that was read.
struct Source {
  std::string name;
  std::vector<cache::Trial> trials;
  std::vector<cache::Winner> winners;
};

// What is to be said of a winner with the trials of its run.
ProblemFindings findings_of(const cache::Winner& winner, std::vector<cache::Trial> trials,
                            std::string source);

// One entry per device, in the order of their fingerprints. Where several sources have a winner of
// a problem, the newest counts.
std::vector<DeviceFindings> make_findings(std::span<const Source> sources);

// A winner, as `show --trials` and the page of reports have it.
Json to_json(const ProblemFindings& found);
Json to_json(const DeviceFindings& device);

// The page of reports, as the build embedded it.
struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
  std::string_view sha256;
};

extern const EmbeddedFile kEmbeddedFiles[];
extern const int kNumEmbeddedFiles;

}  // namespace dorajit::cli::report
