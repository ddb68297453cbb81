// Timing of candidates: with a cold cache, several launches per sample.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "cache/records/winner_choice.h"  // IWYU pragma: export
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"

namespace dorajit::autotune {

// The middle value, or the mean of the two middle ones. 0 for no samples.
double median(std::span<const double> samples);

// The median of the absolute deviations from the median: a spread that is insensitive to outliers.
double median_absolute_deviation(std::span<const double> samples);

// A mean that is insensitive to outliers, and its standard error.
struct Estimate {
  double mean = 0;
  double standard_error = 0;  // infinite for fewer than kMinSamples samples
};

// The mean without the lowest and the highest sixth of the samples. It needs two thirds of the
// samples that a median needs for the same standard error.
Estimate trimmed_mean(std::span<const double> samples);

// A candidate's typical samples before a round.
struct UsualTime {
  double median = 0;
  double deviation = 0;  // median absolute deviation
};

// Whether nearly all candidates of a round were clearly slower than usual: by a tenth, and by more
// than their own spread explains. `samples` and `usual` have the same order.
bool is_disturbed(std::span<const double> samples, std::span<const UsualTime> usual);

// Work to time: enqueues it once, on set number `set` of rotating operands.
using Work = std::function<Status(device::Stream stream, std::int64_t set)>;

struct MeasurementPlan {
  int rounds = 12;       // samples per candidate
  double seconds = 1.0;  // after this much time no round starts, except the first
  Clock now = std::chrono::steady_clock::now;  // for `seconds`
  double sample_seconds = 100e-6;  // a sample repeats its work until it takes about this long
  std::int64_t sets = 1;           // number of operand sets for rotation
  int settling_launches = 0;       // run before each sample and not timed
};

struct Measurement {
  double median_ns = 0;  // of one repetition
  double mad_ns = 0;
  int samples = 0;
  Status status;  // the error, if it failed
};

// Copies other data through the cache, as the layers between two launches do: afterwards part of
// the cache is clean and part must be written back, which costs the timed launch as it costs a
// caller. While the copy runs, the CPU enqueues the timed work, so that the time includes no wait
// for the CPU.
class CacheFiller {
 public:
  // Does nothing on a CPU, where rotating among operands is enough and a copy would be slow, and
  // does nothing if the memory cannot be allocated.
  explicit CacheFiller(device::Device& device);

  // Enqueues the copy.
  Status enqueue(device::Stream stream) const;

 private:
  device::Device& device_;
  std::unique_ptr<device::Buffer> buffer_;
};

// Takes rounds of samples: one sample of each requested candidate, in an order that is shuffled for
// each round, so that clock drift and other load affect all candidates alike. Operand sets are
// rotated, so that with enough sets no launch finds its data in the cache; on a GPU, the cache is
// also filled with other data before each sample. The candidate's own untimed launches then bring
// the cache to the state that they leave behind: otherwise a candidate that leaves more data to
// write back would not pay for it.
class RoundSampler {
 public:
  // Warms up every candidate. `candidates` must outlive this object.
  RoundSampler(device::Device& device, const std::vector<Work>& candidates,
               const MeasurementPlan& plan);
  ~RoundSampler();
  RoundSampler(const RoundSampler&) = delete;
  RoundSampler& operator=(const RoundSampler&) = delete;

  // Nanoseconds of one repetition for each candidate in `who`, in that order; NaN for a candidate
  // that fails now or failed before.
  std::vector<double> sample(std::span<const std::size_t> who);

  // The error of a candidate, if it failed.
  [[nodiscard]] const Status& status(std::size_t candidate) const;

 private:
  class Candidate;

  device::Device& device_;
  CacheFiller filler_;
  std::int64_t rotation_ = 0;
  std::vector<Candidate> candidates_;
  std::minstd_rand random_{20260323};
};

// Samples all candidates in every round of the plan.
std::vector<Measurement> measure_interleaved(device::Device& device,
                                             const std::vector<Work>& candidates,
                                             const MeasurementPlan& plan);

// How many sets of `set_bytes` are needed so that none of them is in the device's cache when it is
// used again, limited by `budget_bytes`; at least 1.
std::int64_t sets_for_cold_cache(const device::DeviceInfo& device, std::int64_t set_bytes,
                                 std::int64_t budget_bytes);

// How many launches on `set_bytes` each replace the contents of a GPU's cache, within a limit.
int launches_to_settle(const device::DeviceInfo& device, std::int64_t set_bytes);

}  // namespace dorajit::autotune
