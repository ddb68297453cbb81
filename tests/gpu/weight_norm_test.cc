// weight_norm on an NVIDIA GPU: within its error bound, with the same bits for every config, and
// with a zero B the bits of the CPU.
#include "runtime/device/cpu/cpu_device.h"
#include "tests/conformance/weight_norm_cases.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/gpu/slices.h"

namespace dorajit::tests {
namespace {

class WeightNormOnGpu : public GpuTest {
 protected:
  CaseOutcome run(const std::vector<kernels::ElementType>& types, const WeightNormCase& one,
                  kernels::SpaceKind space = kernels::SpaceKind::kSlim, const Slice& slice = {}) {
    CaseOutcome outcome = run_weight_norm(*device_, *kernels_, types, one, space, slice);
    EXPECT_TRUE(outcome.failures.empty()) << join(outcome.failures);
    EXPECT_FALSE(outcome.configs.empty());
    return outcome;
  }
};

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
  device::CpuDevice cpu;
  Statistics statistics;
  launch::KernelCache kernels{Settings{}, nullptr, statistics};
  const WeightNormCase one{.rows = 65, .columns = 1300, .rank = 24, .has_zero_b = true};
  for (const auto& types : weight_norm_types()) {
    EXPECT_EQ(run(types, one).values,
              run_weight_norm(cpu, kernels, types, one, kernels::SpaceKind::kSlim).values);
  }
}

TEST_F(WeightNormOnGpu, LargestRanksAreSupported) {
  using enum kernels::ElementType;
  for (const std::int64_t rank : {391, 448, 768, 769, 1024}) {
    run({kBfloat16, kBfloat16, kBfloat16}, {.rows = 200, .columns = 600, .rank = rank});
    run({kBfloat16, kFloat32, kFloat32}, {.rows = 200, .columns = 600, .rank = rank});
  }
}

// More tasks than multiprocessors: several parts of a row in one program, rows of which a program
// has only some parts, and B with any alignment.
TEST_F(WeightNormOnGpu, ProgramsWithSeveralTasksAreWithinTheBound) {
  using enum kernels::ElementType;
  for (const std::int64_t rank : {0, 24, 70, 72, 500, 501}) {
    run({kBfloat16, kBfloat16, kBfloat16}, {.rows = 2300, .columns = 8192, .rank = rank});
  }
}

TEST_F(WeightNormOnGpu, InFullEveryConfigForFactorsOfFloat32IsWithinTheBound) {
  using enum kernels::ElementType;
  run({kFloat32, kFloat32, kFloat32}, {.rows = 130, .columns = 1024, .rank = 72},
      kernels::SpaceKind::kComprehensive);
}

class WeightNormOnGpuInFull : public WeightNormOnGpu, public testing::WithParamInterface<Slice> {};
INSTANTIATE_TEST_SUITE_P(Slices, WeightNormOnGpuInFull, slices());

TEST_P(WeightNormOnGpuInFull, EveryConfigForFactorsOfBfloat16IsWithinTheBoundWithEqualBits) {
  using enum kernels::ElementType;
  run({kBfloat16, kBfloat16, kBfloat16}, {.rows = 130, .columns = 1024, .rank = 72},
      kernels::SpaceKind::kComprehensive, GetParam());
}

}  // namespace
}  // namespace dorajit::tests
