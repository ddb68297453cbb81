#include "autotune/search/measurement.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

namespace dorajit::autotune {
namespace {

constexpr std::size_t kTrimmedPart = 6;  // one in so many is trimmed at either end

constexpr double kClearlySlower = 1.10;
// Of median absolute deviations: 2.7 standard deviations of normal noise.
constexpr double kDeviations = 4.0;
constexpr double kNearlyAll = 0.85;

constexpr int kMaxRepeats = 200;
constexpr std::int64_t kMaxSettlingLaunches = 32;
// Multiple of the cache size that evicts the data of earlier launches.
constexpr double kColdFactor = 3.0;
constexpr std::int64_t kMaxSetsOnCpu = 8192;

// What CacheFiller copies, in multiples of the cache's size.
constexpr std::int64_t kCacheSizes = 2;
constexpr std::int64_t kPartsOfFreeMemory = 8;  // it takes at most one of these parts

}  // namespace

double median(std::span<const double> samples) {
  if (samples.empty()) return 0;
  std::vector<double> sorted(samples.begin(), samples.end());
  const std::size_t middle = sorted.size() / 2;
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(middle));
  const double upper = sorted[middle];
  if (sorted.size() % 2 == 1) return upper;
  return (*std::max_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(middle)) +
          upper) /
         2;
}

double median_absolute_deviation(std::span<const double> samples) {
  const double center = median(samples);
  std::vector<double> deviations;
  deviations.reserve(samples.size());
  for (const double sample : samples) deviations.push_back(std::abs(sample - center));
  return median(deviations);
}

Estimate trimmed_mean(std::span<const double> samples) {
  const std::size_t count = samples.size();
  if (count == 0) return {.standard_error = std::numeric_limits<double>::infinity()};
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const std::size_t cut = count < 3 ? 0 : std::max<std::size_t>(1, count / kTrimmedPart);
  const double lowest = sorted[cut];
  const double highest = sorted[count - 1 - cut];
  double kept = 0;
  double winsorized = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= cut && i < count - cut) kept += sorted[i];
    winsorized += std::clamp(sorted[i], lowest, highest);
  }
  const auto left = static_cast<double>(count - 2 * cut);
  Estimate estimate{.mean = kept / left, .standard_error = std::numeric_limits<double>::infinity()};
  if (count < static_cast<std::size_t>(cache::kMinSamples)) return estimate;
  winsorized /= static_cast<double>(count);
  double squares = 0;
  for (const double sample : sorted) {
    const double deviation = std::clamp(sample, lowest, highest) - winsorized;
    squares += deviation * deviation;
  }
  // Yuen's standard error of a trimmed mean.
  estimate.standard_error = std::sqrt(squares / (left * (left - 1)));
  return estimate;
}

bool is_disturbed(std::span<const double> samples, std::span<const UsualTime> usual) {
  std::size_t slower = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double limit = std::max(kClearlySlower * usual[i].median,
                                  usual[i].median + kDeviations * usual[i].deviation);
    if (samples[i] > limit) ++slower;
  }
  return !samples.empty() &&
         static_cast<double>(slower) >= kNearlyAll * static_cast<double>(samples.size());
}

CacheFiller::CacheFiller(device::Device& device) : device_(device) {
  if (device.info().traits.kind == kernels::DeviceKind::kCpu) return;
  const std::int64_t bytes = 2 * kCacheSizes * device.info().cache_bytes;
  const auto free = device.free_memory();
  if (!free || bytes > *free / kPartsOfFreeMemory) return;
  auto buffer = device.allocate(static_cast<std::size_t>(bytes));
  if (buffer && device.fill((*buffer)->data(), 0, (*buffer)->size())) buffer_ = *std::move(buffer);
}

Status CacheFiller::enqueue(device::Stream stream) const {
  if (buffer_ == nullptr) return {};
  const std::size_t half = buffer_->size() / 2;
  return device_.copy(buffer_->data() + half, buffer_->data(), half, stream);
}

class RoundSampler::Candidate {
 public:
  // `rotation` counts the launches of all candidates together. If each candidate counted its own,
  // it would find the data of the previous candidate's launch in the cache.
  Candidate(const Work& work, const CacheFiller& filler, const MeasurementPlan& plan,
            std::int64_t& rotation)
      : work_(work),
        filler_(filler),
        sets_(std::max<std::int64_t>(plan.sets, 1)),
        settling_launches_(plan.settling_launches),
        rotation_(rotation) {}

  // Runs once to load and warm up, then computes how often a sample repeats it, and runs such a
  // sample if that is more than once: in a space of hundreds of configs each sample counts.
  void warm_up(device::Device& device, double sample_seconds) {
    double once = 1.0;
    for (int i = 0; i < 2 && status_; ++i) once = std::max(sample(device), 1.0);
    if (!status_) return;
    repeats_ = std::clamp(static_cast<int>(std::ceil(sample_seconds * 1e9 / once)), 1, kMaxRepeats);
    if (repeats_ > 1) sample(device);
  }

  double sample(device::Device& device) {
    if (!status_) return std::numeric_limits<double>::quiet_NaN();
    const auto elapsed = device.time_ns(
        [this](device::Stream stream) -> Status {
          DORAJIT_TRY(filler_.enqueue(stream));
          return repeat(stream, settling_launches_);
        },
        [this](device::Stream stream) { return repeat(stream, repeats_); });
    if (elapsed) return *elapsed / repeats_;
    status_ = std::unexpected(elapsed.error());
    return std::numeric_limits<double>::quiet_NaN();
  }

  [[nodiscard]] const Status& status() const { return status_; }

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
  Status status_;
};

RoundSampler::RoundSampler(device::Device& device, const std::vector<Work>& candidates,
                           const MeasurementPlan& plan)
    : device_(device), filler_(device) {
  candidates_.reserve(candidates.size());
  for (const Work& work : candidates) candidates_.emplace_back(work, filler_, plan, rotation_);
  for (Candidate& candidate : candidates_) candidate.warm_up(device, plan.sample_seconds);
}

RoundSampler::~RoundSampler() = default;

std::vector<double> RoundSampler::sample(std::span<const std::size_t> who) {
  std::vector<std::size_t> order(who.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::shuffle(order, random_);
  std::vector<double> samples(who.size());
  for (const std::size_t i : order) samples[i] = candidates_[who[i]].sample(device_);
  return samples;
}

const Status& RoundSampler::status(std::size_t candidate) const {
  return candidates_[candidate].status();
}

std::vector<Measurement> measure_interleaved(device::Device& device,
                                             const std::vector<Work>& candidates,
                                             const MeasurementPlan& plan) {
  const Moment start = plan.now();
  RoundSampler sampler(device, candidates, plan);
  std::vector<std::size_t> everyone(candidates.size());
  std::iota(everyone.begin(), everyone.end(), std::size_t{0});
  std::vector<std::vector<double>> samples(candidates.size());
  for (int round = 0; round < plan.rounds; ++round) {
    const Seconds spent = plan.now() - start;
    if (round > 0 && spent.count() > plan.seconds) break;
    const std::vector<double> taken = sampler.sample(everyone);
    for (std::size_t i = 0; i < taken.size(); ++i) {
      if (!std::isnan(taken[i])) samples[i].push_back(taken[i]);
    }
  }
  std::vector<Measurement> results;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    results.push_back({.median_ns = median(samples[i]),
                       .mad_ns = median_absolute_deviation(samples[i]),
                       .samples = static_cast<int>(samples[i].size()),
                       .status = sampler.status(i)});
  }
  return results;
}

std::int64_t sets_for_cold_cache(const device::DeviceInfo& device, std::int64_t set_bytes,
                                 std::int64_t budget_bytes) {
  const double wanted = kColdFactor * static_cast<double>(device.cache_bytes) /
                        static_cast<double>(std::max<std::int64_t>(set_bytes, 1));
  const std::int64_t affordable = budget_bytes / std::max<std::int64_t>(set_bytes, 1);
  // On a GPU the cache is filled again before each sample, so a sample uses no set twice.
  const std::int64_t max_sets =
      device.traits.kind == kernels::DeviceKind::kCpu ? kMaxSetsOnCpu : kMaxRepeats;
  const std::int64_t sets =
      std::min({static_cast<std::int64_t>(std::ceil(wanted)) + 1, affordable, max_sets});
  return std::max<std::int64_t>(sets, 1);
}

int launches_to_settle(const device::DeviceInfo& device, std::int64_t set_bytes) {
  if (device.traits.kind == kernels::DeviceKind::kCpu) return 0;
  const std::int64_t launches = device.cache_bytes / std::max<std::int64_t>(set_bytes, 1) + 1;
  return static_cast<int>(std::min(launches, kMaxSettlingLaunches));
}

}  // namespace dorajit::autotune
