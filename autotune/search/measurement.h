// Timing of a candidate: cold cache, several launches a sample.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "autotune/search/cache_filler.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"

namespace dorajit::autotune {

// Something to time: enqueues its work once, on set number `set` of rotating operands.
using Work = std::function<Status(device::Stream stream, std::int64_t set)>;

struct MeasurementPlan {
  int rounds = 12;                 // samples per candidate
  int least_rounds = 1;            // done however long they take
  double seconds = 1.0;            // no round is begun after that much time
  double sample_seconds = 100e-6;  // a sample repeats its work until it lasts about this long
  std::int64_t sets = 1;           // how many operand sets there are to rotate among
  int settling_launches = 0;       // run before each sample and not timed
};

struct Measurement {
  double median_ns = 0;  // of one piece of work
  double mad_ns = 0;
  int samples = 0;
  Status status;  // what failed, if it did
};

// Takes rounds of samples: one of each candidate that is asked for, in an order drawn anew for each
// round, so that drift of clocks and neighbours meets all of them alike. Operand sets are rotated,
// so with enough of them no launch finds its data in cache; on a GPU the cache is filled with other
// data before each sample. The candidate's own launches then bring it to the state that they leave
// it in: else one that leaves more to be written back would not pay for it.
class RoundSampler {
 public:
  // Warms every candidate up. `candidates` must outlive this.
  RoundSampler(device::Device& device, const std::vector<Work>& candidates,
               const MeasurementPlan& plan);
  ~RoundSampler();
  RoundSampler(const RoundSampler&) = delete;
  RoundSampler& operator=(const RoundSampler&) = delete;

  // Nanoseconds of one piece of work of each of `who`, in that order; NaN for one that fails now or
  // did before.
  std::vector<double> sample(std::span<const std::size_t> who);

  // What failed, if it did.
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

// How many sets of `set_bytes` it takes to find none of them in the device's cache, as far as
// `budget_bytes` allow; at least 1.
std::int64_t sets_for_cold_cache(const device::DeviceInfo& device, std::int64_t set_bytes,
                                 std::int64_t budget_bytes);

// How many launches on `set_bytes` each replace what is in a GPU's cache, within reason.
int launches_to_settle(const device::DeviceInfo& device, std::int64_t set_bytes);

}  // namespace dorajit::autotune
