// compose_low_rank and weight_norm on an NVIDIA GPU: within their error bounds, with the same bits
// for every config, and with a zero B the bits of the CPU.
#include <set>

#include "kernel_templates/compose_low_rank_config.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/conformance/matrix_cases.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/gpu/slices.h"

namespace dorajit::tests {
namespace {

class MatricesOnGpu : public GpuTest {
 protected:
  template <class Case>
  CaseOutcome run(const Types& types, const Case& one,
                  kernels::SpaceKind space = kernels::SpaceKind::kSlim, const Slice& slice = {}) {
    CaseOutcome outcome = run_case(*device_, *kernels_, types, one, space, slice);
    EXPECT_TRUE(outcome.failures.empty()) << join(outcome.failures);
    EXPECT_FALSE(outcome.configs.empty());
    return outcome;
  }

  template <class Case>
  void expect_bits_of_the_cpu(const std::vector<Types>& all_types, const Case& one) {
    device::CpuDevice cpu;
    Statistics statistics;
    launch::KernelCache kernels{Settings{}, nullptr, statistics};
    for (const Types& types : all_types) {
      EXPECT_EQ(run(types, one).values,
                run_case(cpu, kernels, types, one, kernels::SpaceKind::kSlim).values);
    }
  }
};

class ComposeLowRankOnGpu : public MatricesOnGpu {};
class WeightNormOnGpu : public MatricesOnGpu {};

TEST_F(ComposeLowRankOnGpu, EveryConfigOfTheSlimSpaceIsWithinTheBoundWithEqualBits) {
  for (const Types& types : {low_rank_types()[0], low_rank_types()[2]}) {
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
  for (const Types& types : low_rank_types()) {
    for (const LowRankCase& one : low_rank_whole_programs()) run(types, one);
  }
}

TEST_F(ComposeLowRankOnGpu, ProgramsThatLoopOverTilesAreWithinTheBoundWithEqualBits) {
  for (const Types& types : {low_rank_types()[0], low_rank_types()[1]}) {
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
  for (const Types& types : low_rank_types()) {
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
  expect_bits_of_the_cpu(low_rank_types(),
                         LowRankCase{.rows = 65, .columns = 300, .rank = 24, .has_zero_b = true});
}

TEST_F(ComposeLowRankOnGpu, LargeRanksOfOneSignAreWithinTheBound) {
  for (const std::int64_t rank : {384, 1000, 1024}) {
    run(low_rank_types()[3],
        LowRankCase{.rows = 70, .columns = 200, .rank = rank, .has_one_sign = true});
  }
}

TEST_F(ComposeLowRankOnGpu, InFullEveryConfigForALargeRankIsWithinTheBound) {
  run(low_rank_types()[0], LowRankCase{.rows = 530, .columns = 520, .rank = 72},
      kernels::SpaceKind::kComprehensive);
}

class ComposeLowRankOnGpuInFull : public ComposeLowRankOnGpu,
                                  public testing::WithParamInterface<Slice> {};
INSTANTIATE_TEST_SUITE_P(Slices, ComposeLowRankOnGpuInFull, slices());

TEST_P(ComposeLowRankOnGpuInFull, EveryConfigForASmallRankIsWithinTheBoundWithEqualBits) {
  run(low_rank_types()[0], LowRankCase{.rows = 530, .columns = 520, .rank = 16},
      kernels::SpaceKind::kComprehensive, GetParam());
}

TEST_F(WeightNormOnGpu, EveryConfigOfTheSlimSpaceIsWithinTheBoundWithEqualBits) {
  for (const auto& types : weight_norm_types()) {
    for (const WeightNormCase& one : weight_norm_cases()) run(types, one);
  }
}

TEST_F(WeightNormOnGpu, FactorsOfOneSignAreWithinTheBound) {
  for (const auto& types : weight_norm_types()) {
    for (const WeightNormCase& one : weight_norms_of_one_sign()) run(types, one);
  }
}

TEST_F(WeightNormOnGpu, FactorsOfAnyRangeAreWithinTheBound) {
  using enum kernels::ElementType;
  for (const auto& types :
       {std::vector{kFloat32, kFloat32, kFloat32}, std::vector{kBfloat16, kFloat32, kFloat32},
        std::vector{kBfloat16, kBfloat16, kFloat32}}) {
    for (const WeightNormCase& one : weight_norms_of_wide_range()) run(types, one);
  }
}

TEST_F(WeightNormOnGpu, AlignmentDoesNotChangeBits) {
  using enum kernels::ElementType;
  for (const kernels::ElementType factor : {kBfloat16, kFloat32}) {
    for (const std::int64_t rank : {40, 200, 500}) {
      WeightNormCase aligned{.rows = 130, .columns = 1024, .rank = rank};
      WeightNormCase shifted = aligned;
      shifted.misalignment = 1;
      EXPECT_EQ(run({kBfloat16, factor, factor}, aligned).values,
                run({kBfloat16, factor, factor}, shifted).values);
    }
  }
}

TEST_F(WeightNormOnGpu, ZeroLoraBGivesTheBitsOfTheCpu) {
  expect_bits_of_the_cpu(
      weight_norm_types(),
      WeightNormCase{.rows = 65, .columns = 1300, .rank = 24, .has_zero_b = true});
}

TEST_F(WeightNormOnGpu, LargestRanksAreSupported) {
  using enum kernels::ElementType;
  for (const std::int64_t rank : {391, 448, 768, 769, 1024}) {
    run({kBfloat16, kBfloat16, kBfloat16},
        WeightNormCase{.rows = 200, .columns = 600, .rank = rank});
    run({kBfloat16, kFloat32, kFloat32}, WeightNormCase{.rows = 200, .columns = 600, .rank = rank});
  }
}

// More tasks than multiprocessors: several parts of a row in one program, rows of which a program
// has only some parts, and B with any alignment.
TEST_F(WeightNormOnGpu, ProgramsWithSeveralTasksAreWithinTheBound) {
  using enum kernels::ElementType;
  for (const std::int64_t rank : {0, 24, 70, 72, 500, 501}) {
    run({kBfloat16, kBfloat16, kBfloat16},
        WeightNormCase{.rows = 2300, .columns = 8192, .rank = rank});
    if (rank > 100) continue;  // the host takes long
    run({kBfloat16, kFloat32, kFloat32},
        WeightNormCase{.rows = 2300, .columns = 8192, .rank = rank});
  }
}

class WeightNormOnGpuInFull : public WeightNormOnGpu, public testing::WithParamInterface<Slice> {};
INSTANTIATE_TEST_SUITE_P(Slices, WeightNormOnGpuInFull, slices());

TEST_P(WeightNormOnGpuInFull, EveryConfigForFactorsOfBfloat16IsWithinTheBoundWithEqualBits) {
  using enum kernels::ElementType;
  run({kBfloat16, kBfloat16, kBfloat16}, WeightNormCase{.rows = 130, .columns = 1024, .rank = 72},
      kernels::SpaceKind::kComprehensive, GetParam());
}

TEST_P(WeightNormOnGpuInFull, EveryConfigForFactorsOfFloat32IsWithinTheBoundWithEqualBits) {
  using enum kernels::ElementType;
  run({kFloat32, kFloat32, kFloat32}, WeightNormCase{.rows = 130, .columns = 1024, .rank = 24},
      kernels::SpaceKind::kComprehensive, GetParam());
}

}  // namespace
}  // namespace dorajit::tests
