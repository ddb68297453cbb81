// compose_low_rank on an NVIDIA GPU: within its error bound, the same bits by every config, and
// with a B of zeros those of the CPU.
#include "runtime/device/cpu/cpu_device.h"
#include "tests/conformance/low_rank_cases.h"
#include "tests/gpu/gpu_fixture.h"

namespace dorajit::tests {
namespace {

class ComposeLowRankOnGpu : public GpuTest {
 protected:
  CaseOutcome run(const LowRankTypes& types, const LowRankCase& one,
                  kernels::SpaceKind space = kernels::SpaceKind::kSlim) {
    CaseOutcome outcome = run_low_rank(*device_, *kernels_, types, one, space);
    EXPECT_TRUE(outcome.failures.empty()) << join(outcome.failures);
    EXPECT_GT(outcome.configs, 0);
    return outcome;
  }
};

TEST_F(ComposeLowRankOnGpu, EveryConfigOfTheSlimSpaceKeepsTheBoundAndTheBits) {
  for (const LowRankTypes& types : low_rank_types()) {
    for (const LowRankCase& one : low_rank_cases()) run(types, one);
  }
}

TEST_F(ComposeLowRankOnGpu, ProgramsOfSeveralWholeTilesKeepTheBoundAndTheBits) {
  for (const LowRankTypes& types : low_rank_types()) {
    for (const LowRankCase& one : low_rank_whole_programs()) run(types, one);
  }
}

TEST_F(ComposeLowRankOnGpu, AlignmentChangesNoBit) {
  for (const std::int64_t rank : {40, 200}) {
    const LowRankCase aligned{.rows = 130, .columns = 264, .rank = rank};
    LowRankCase shifted = aligned;
    shifted.misalignment = 1;
    EXPECT_EQ(run(low_rank_types()[1], aligned).values, run(low_rank_types()[1], shifted).values);
  }
}

TEST_F(ComposeLowRankOnGpu, ABOfZerosGivesTheBitsOfTheCpu) {
  device::CpuDevice cpu;
  Statistics statistics;
  launch::KernelCache kernels{Settings{}, nullptr, statistics};
  const LowRankCase one{.rows = 65, .columns = 300, .rank = 24, .has_zero_b = true};
  for (const LowRankTypes& types : low_rank_types()) {
    EXPECT_EQ(run(types, one).values,
              run_low_rank(cpu, kernels, types, one, kernels::SpaceKind::kSlim).values);
  }
}

TEST_F(ComposeLowRankOnGpu, LargeRanksOfOneSignKeepTheBound) {
  for (const std::int64_t rank : {384, 1000, 1024}) {
    run(low_rank_types()[3], {.rows = 70, .columns = 200, .rank = rank, .has_one_sign = true});
  }
}

TEST_F(ComposeLowRankOnGpu, InFullEveryConfigOfTheComprehensiveSpace) {
  for (const std::int64_t rank : {16, 72}) {
    run(low_rank_types()[0], {.rows = 530, .columns = 520, .rank = rank},
        kernels::SpaceKind::kComprehensive);
  }
}

}  // namespace
}  // namespace dorajit::tests
