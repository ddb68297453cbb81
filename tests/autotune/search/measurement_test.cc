#include "autotune/search/measurement.h"

#include <gtest/gtest.h>

#include <set>

#include "autotune/search/scratch_operands.h"
#include "autotune/search/verification.h"
#include "kernel_templates/template.h"
#include "tests/fakes/fake_device.h"
#include "tests/fakes/memory_artifact_store.h"
#include "tests/variants.h"

namespace dorajit::autotune {
namespace {

TEST(Measurement, RotatesSetsAndTakesOneSamplePerRound) {
  tests::FakeDevice device(1);
  std::set<std::int64_t> sets;
  const std::vector<Work> work = {[&](device::Stream, std::int64_t set) -> Status {
    sets.insert(set);
    return {};
  }};
  const auto measured =
      measure_interleaved(device, work, {.rounds = 7, .now = device.clock(), .sets = 3});
  ASSERT_EQ(measured.size(), 1U);
  EXPECT_EQ(measured[0].samples, 7);
  EXPECT_EQ(sets, (std::set<std::int64_t>{0, 1, 2}));
}

TEST(Measurement, FailingCandidateDoesNotAffectTheOthers) {
  tests::FakeDevice device(1);
  int calls = 0;
  const std::vector<Work> work = {[&](device::Stream, std::int64_t) -> Status {
                                    if (++calls > 3)
                                      return fail(StatusCode::kDriverError, "broken");
                                    return {};
                                  },
                                  [](device::Stream, std::int64_t) -> Status { return {}; }};
  const auto measured = measure_interleaved(device, work, {.rounds = 5, .now = device.clock()});
  EXPECT_FALSE(measured[0].status);
  EXPECT_TRUE(measured[1].status);
  EXPECT_EQ(measured[1].samples, 5);
}

TEST(Measurement, CacheIsFilledBeforeEachSampleOnAGpuButNotOnACpu) {
  tests::FakeDevice device(1);
  std::vector<int> copies_before;
  const std::vector<Work> work = {[&](device::Stream, std::int64_t) -> Status {
    copies_before.push_back(device.copies());
    return {};
  }};
  const MeasurementPlan one_launch_a_sample{
      .rounds = 3, .now = device.clock(), .sample_seconds = 0};
  EXPECT_TRUE(measure_interleaved(device, work, one_launch_a_sample)[0].status);
  EXPECT_EQ(device.copies(), 0);
  copies_before.clear();
  device.pose_as_gpu();
  EXPECT_TRUE(measure_interleaved(device, work, one_launch_a_sample)[0].status);
  EXPECT_EQ(copies_before, (std::vector<int>{1, 2, 3, 4, 5}));  // two to warm up
}

TEST(Measurement, LaunchesThatSettleTheCacheAreNotTimed) {
  tests::FakeDevice device(1);
  device.pose_as_gpu();
  int launches = 0;
  const std::vector<Work> work = {[&](device::Stream, std::int64_t) -> Status {
    ++launches;
    device.spend(std::chrono::nanoseconds(1000));
    return {};
  }};
  const auto measured = measure_interleaved(device, work,
                                            {.rounds = 4,
                                             .now = device.clock(),
                                             .sample_seconds = 5e-6,
                                             .sets = 100,
                                             .settling_launches = 7});
  EXPECT_EQ(launches, 2 * (7 + 1) + (7 + 5) + 4 * (7 + 5));
  EXPECT_EQ(measured[0].median_ns, 1000);
}

TEST(Measurement, SettlingLaunchesReplaceTheCacheOfAGpu) {
  device::DeviceInfo device;
  device.cache_bytes = 60 << 20;
  EXPECT_EQ(launches_to_settle(device, 1), 0) << "a CPU";
  device.traits.kind = kernels::DeviceKind::kCuda;
  EXPECT_EQ(launches_to_settle(device, 12 << 20), 6);
  EXPECT_EQ(launches_to_settle(device, 1LL << 40), 1);
  EXPECT_LE(launches_to_settle(device, 1), 64);
}

TEST(Measurement, NumberOfSetsExceedsTheCacheWithinTheBudget) {
  device::DeviceInfo device;
  device.cache_bytes = 60 << 20;
  EXPECT_GE(sets_for_cold_cache(device, 24 << 10, 2LL << 30) * (24 << 10), 120LL << 20);
  EXPECT_EQ(sets_for_cold_cache(device, 1LL << 30, 1LL << 20), 1);
  EXPECT_LE(sets_for_cold_cache(device, 1 << 20, 10 << 20), 10);
}

TEST(Verifier, WriteIntoThePaddingBetweenRowsIsDetected) {
  tests::FakeDevice device(1);
  Statistics statistics;
  tests::MemoryArtifactStore artifacts;
  launch::KernelCache kernels(Settings{}, &artifacts, statistics);
  launch::Problem problem =
      launch::make_problem(tests::float_compose(), kernels::DeviceKind::kCpu, {8, 301});
  problem.vector_width = 4;  // pads rows of 301 columns to 304
  auto verifier = Verifier::make(problem, device);
  ASSERT_TRUE(verifier);
  auto ready =
      kernels.get(device, problem.variant, kernels::builtin_cpu_config(tests::float_compose()));
  ASSERT_TRUE(ready);
  EXPECT_EQ(verifier->check(*ready), Result<cache::Verdict>(cache::Verdict::kOk));
  // The same kernel, called with rows that are three columns longer.
  device.stretch_rows(3);
  EXPECT_EQ(verifier->check(*ready), Result<cache::Verdict>(cache::Verdict::kWrongBits));
}

// Counts reads from the device while a journal entry exists, and the entries.
class CountingWatch final : public cache::LaunchJournal {
 public:
  explicit CountingWatch(const tests::FakeDevice& device) : device_(device) {}
  std::unique_ptr<Entry> enter(std::string_view, std::string_view,
                               const kernels::Config&) override {
    return std::make_unique<CountingEntry>(*this);
  }
  std::vector<kernels::Config> crashed_configs(std::string_view) override { return {}; }
  void forget(std::string_view, std::span<const kernels::Config>) override {}
  [[nodiscard]] int begun() const { return begun_; }
  [[nodiscard]] int ended() const { return ended_; }
  [[nodiscard]] int downloads() const { return downloads_; }

 private:
  class CountingEntry final : public Entry {
   public:
    explicit CountingEntry(CountingWatch& watch)
        : watch_(watch), before_(watch.device_.downloads()) {
      ++watch.begun_;
    }
    ~CountingEntry() override {
      ++watch_.ended_;
      watch_.downloads_ += watch_.device_.downloads() - before_;
    }

   private:
    CountingWatch& watch_;
    const int before_;
  };

  const tests::FakeDevice& device_;
  int begun_ = 0;
  int ended_ = 0;
  int downloads_ = 0;
};

TEST(Verifier, JournalEntryLastsAsLongAsAKernelCanHarmItsHost) {
  tests::FakeDevice device(1);
  Statistics statistics;
  tests::MemoryArtifactStore artifacts;
  launch::KernelCache kernels(Settings{}, &artifacts, statistics);
  const launch::Problem problem =
      launch::make_problem(tests::float_compose(), kernels::DeviceKind::kCpu, {8, 300});
  auto verifier = Verifier::make(problem, device);
  ASSERT_TRUE(verifier);
  const auto ready =
      kernels.get(device, problem.variant, kernels::builtin_cpu_config(tests::float_compose()));
  ASSERT_TRUE(ready);
  CountingWatch on_cpu(device);
  EXPECT_EQ(verifier->check(*ready, {.journal = &on_cpu}),
            Result<cache::Verdict>(cache::Verdict::kOk));
  EXPECT_GT(on_cpu.begun(), 1);
  EXPECT_EQ(on_cpu.ended(), on_cpu.begun());
  EXPECT_EQ(on_cpu.downloads(), on_cpu.begun()) << "until its output was checked";

  device.pose_as_gpu();
  CountingWatch on_gpu(device);
  EXPECT_EQ(verifier->check(*ready, {.journal = &on_gpu}),
            Result<cache::Verdict>(cache::Verdict::kOk));
  EXPECT_EQ(on_gpu.begun(), on_cpu.begun());
  EXPECT_EQ(on_gpu.downloads(), 0);

  device.plant(ready->config, tests::Misbehaviour::kFailsToLaunch);
  CountingWatch failing(device);
  EXPECT_FALSE(verifier->check(*ready, {.journal = &failing}));
  EXPECT_EQ(failing.ended(), 1) << "the launch returned";
}

}  // namespace
}  // namespace dorajit::autotune
