// compose_low_rank on an NVIDIA GPU: within its error bound, with the same bits for every config,
// and with a zero B the bits of the CPU.
#include <set>

#include "kernel_templates/compose_low_rank_config.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/conformance/low_rank_cases.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/gpu/slices.h"

namespace dorajit::tests {
namespace {

class ComposeLowRankOnGpu : public GpuTest {
 protected:
  CaseOutcome run(const LowRankTypes& types, const LowRankCase& one,
                  kernels::SpaceKind space = kernels::SpaceKind::kSlim, const Slice& slice = {}) {
    CaseOutcome outcome = run_low_rank(*device_, *kernels_, types, one, space, slice);
    EXPECT_TRUE(outcome.failures.empty()) << join(outcome.failures);
    EXPECT_FALSE(outcome.configs.empty());
    return outcome;
  }
};

TEST_F(ComposeLowRankOnGpu, EveryConfigOfTheSlimSpaceIsWithinTheBoundWithEqualBits) {
  for (const LowRankTypes& types : {low_rank_types()[0], low_rank_types()[2]}) {
    for (const LowRankCase& one : low_rank_cases()) run(types, one);
  }
}

TEST_F(ComposeLowRankOnGpu, EveryConfigThatWritesInnerIsWithinTheBoundWithEqualBits) {
  for (const LowRankCase& one : low_rank_cases()) run(low_rank_types()[1], one);
}

TEST_F(ComposeLowRankOnGpu, EveryConfigOfWideResultsIsWithinTheBoundWithEqualBits) {
  for (const LowRankCase& one : low_rank_cases()) run(low_rank_types()[3], one);
}

TEST_F(ComposeLowRankOnGpu, ProgramsOfSeveralCompleteTilesAreWithinTheBoundWithEqualBits) {
  for (const LowRankTypes& types : low_rank_types()) {
    for (const LowRankCase& one : low_rank_whole_programs()) run(types, one);
  }
}

TEST_F(ComposeLowRankOnGpu, ProgramsThatLoopOverTilesAreWithinTheBoundWithEqualBits) {
  for (const LowRankTypes& types : {low_rank_types()[0], low_rank_types()[1]}) {
    for (const LowRankCase& one : low_rank_many_tiles()) run(types, one);
  }
}

TEST_F(ComposeLowRankOnGpu, AlignmentDoesNotChangeBits) {
  const LowRankCase aligned{.rows = 130, .columns = 264, .rank = 24};
  LowRankCase shifted = aligned;
  shifted.misalignment = 1;
  EXPECT_EQ(run(low_rank_types()[1], aligned).values, run(low_rank_types()[1], shifted).values);
}

// wgmma on sm_90 requires an alignment of 16 bytes.
TEST_F(ComposeLowRankOnGpu, AlignmentOfLongRanksDoesNotChangeBits) {
  constexpr int kMma = static_cast<int>(kernels::LowRankInstruction::kMma);
  constexpr int kWgmma = static_cast<int>(kernels::LowRankInstruction::kWgmma);
  const int preferred = device_->info().traits.architecture == 90 ? kWgmma : kMma;
  for (const LowRankTypes& types : low_rank_types()) {
    for (const LowRankCase& aligned : low_rank_long_ranks()) {
      LowRankCase shifted = aligned;
      shifted.misalignment = 1;
      const CaseOutcome one = run(types, aligned);
      const CaseOutcome other = run(types, shifted);
      EXPECT_EQ(one.instructions, std::set{preferred});
      EXPECT_EQ(other.instructions, std::set{kMma});
      // Not EXPECT_EQ, which would print them.
      EXPECT_TRUE(one.values == other.values) << "rank " << aligned.rank;
    }
  }
}

TEST_F(ComposeLowRankOnGpu, ZeroLoraBGivesTheBitsOfTheCpu) {
  device::CpuDevice cpu;
  Statistics statistics;
  launch::KernelCache kernels{Settings{}, nullptr, statistics};
  const LowRankCase one{.rows = 65, .columns = 300, .rank = 24, .has_zero_b = true};
  for (const LowRankTypes& types : low_rank_types()) {
    EXPECT_EQ(run(types, one).values,
              run_low_rank(cpu, kernels, types, one, kernels::SpaceKind::kSlim).values);
  }
}

TEST_F(ComposeLowRankOnGpu, LargeRanksOfOneSignAreWithinTheBound) {
  for (const std::int64_t rank : {384, 1000, 1024}) {
    run(low_rank_types()[3], {.rows = 70, .columns = 200, .rank = rank, .has_one_sign = true});
  }
}

TEST_F(ComposeLowRankOnGpu, InFullEveryConfigForALargeRankIsWithinTheBound) {
  run(low_rank_types()[0], {.rows = 530, .columns = 520, .rank = 72},
      kernels::SpaceKind::kComprehensive);
}

class ComposeLowRankOnGpuInFull : public ComposeLowRankOnGpu,
                                  public testing::WithParamInterface<Slice> {};
INSTANTIATE_TEST_SUITE_P(Slices, ComposeLowRankOnGpuInFull, slices());

TEST_P(ComposeLowRankOnGpuInFull, EveryConfigForASmallRankIsWithinTheBoundWithEqualBits) {
  run(low_rank_types()[0], {.rows = 530, .columns = 520, .rank = 16},
      kernels::SpaceKind::kComprehensive, GetParam());
}

}  // namespace
}  // namespace dorajit::tests
