#include "autotune/measurement.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

#include "autotune/cache_filler.h"
#include "autotune/robust_statistics.h"

namespace dorajit::autotune {
namespace {

constexpr int kMostRepeats = 200;
constexpr std::int64_t kMostSettlingLaunches = 32;
constexpr double kColdFactor = 3.0;  // of the cache's size, so that nothing survives in it
constexpr std::int64_t kMostSetsOnCpu = 8192;

class Candidate {
 public:
  // `rotation` counts the launches of all candidates together: were each to count its own, one
  // would find in the cache what the one before it has just brought there.
  Candidate(const Work& work, const CacheFiller& filler, const MeasurementPlan& plan,
            std::int64_t& rotation)
      : work_(work),
        filler_(filler),
        sets_(std::max<std::int64_t>(plan.sets, 1)),
        settling_launches_(plan.settling_launches),
        rotation_(rotation) {}

  // Runs once to load and warm, then as often as a sample should repeat it.
  void warm_up(device::Device& device, double sample_seconds) {
    for (int i = 0; i < 2 && status_; ++i) sample(device);
    if (!status_) return;
    const double once = std::max(samples_.back(), 1.0);
    repeats_ =
        std::clamp(static_cast<int>(std::ceil(sample_seconds * 1e9 / once)), 1, kMostRepeats);
    sample(device);
    samples_.clear();
  }

  void sample(device::Device& device) {
    if (!status_) return;
    const auto elapsed = device.time_ns(
        [this](device::Stream stream) -> Status {
          DORAJIT_TRY(filler_.enqueue(stream));
          return repeat(stream, settling_launches_);
        },
        [this](device::Stream stream) { return repeat(stream, repeats_); });
    if (!elapsed) {
      status_ = std::unexpected(elapsed.error());
      return;
    }
    samples_.push_back(*elapsed / repeats_);
  }

  [[nodiscard]] Measurement result() const {
    return {.median_ns = median(samples_),
            .mad_ns = median_absolute_deviation(samples_),
            .samples = static_cast<int>(samples_.size()),
            .status = status_};
  }

 private:
  Status repeat(device::Stream stream, int launches) {
    for (int i = 0; i < launches; ++i) {
      DORAJIT_TRY(work_(stream, rotation_));
      rotation_ = (rotation_ + 1) % sets_;
    }
    return {};
  }

  const Work& work_;
  const CacheFiller& filler_;
  std::int64_t sets_;
  int settling_launches_;
  std::int64_t& rotation_;
  int repeats_ = 1;
  std::vector<double> samples_;
  Status status_;
};

}  // namespace

std::vector<Measurement> measure_interleaved(device::Device& device,
                                             const std::vector<Work>& candidates,
                                             const MeasurementPlan& plan) {
  const CacheFiller filler(device);
  std::int64_t rotation = 0;
  std::vector<Candidate> running;
  running.reserve(candidates.size());
  for (const Work& work : candidates) running.emplace_back(work, filler, plan, rotation);
  const auto start = std::chrono::steady_clock::now();
  for (Candidate& candidate : running) candidate.warm_up(device, plan.sample_seconds);

  std::vector<std::size_t> order(running.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::minstd_rand random(20260323);
  for (int round = 0; round < plan.rounds; ++round) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (round >= plan.least_rounds && spent.count() > plan.seconds) break;
    std::ranges::shuffle(order, random);
    for (const std::size_t index : order) running[index].sample(device);
  }
  std::vector<Measurement> results;
  for (const Candidate& candidate : running) results.push_back(candidate.result());
  return results;
}

std::int64_t sets_for_cold_cache(const device::DeviceInfo& device, std::int64_t set_bytes,
                                 std::int64_t budget_bytes) {
  const double wanted = kColdFactor * static_cast<double>(device.cache_bytes) /
                        static_cast<double>(std::max<std::int64_t>(set_bytes, 1));
  const std::int64_t affordable = budget_bytes / std::max<std::int64_t>(set_bytes, 1);
  // On a GPU the cache is filled anew before each sample, which uses no set twice.
  const std::int64_t most =
      device.traits.kind == kernels::DeviceKind::kCpu ? kMostSetsOnCpu : kMostRepeats;
  const std::int64_t sets =
      std::min({static_cast<std::int64_t>(std::ceil(wanted)) + 1, affordable, most});
  return std::max<std::int64_t>(sets, 1);
}

int launches_to_settle(const device::DeviceInfo& device, std::int64_t set_bytes) {
  if (device.traits.kind == kernels::DeviceKind::kCpu) return 0;
  const std::int64_t launches = device.cache_bytes / std::max<std::int64_t>(set_bytes, 1) + 1;
  return static_cast<int>(std::min(launches, kMostSettlingLaunches));
}

}  // namespace dorajit::autotune
