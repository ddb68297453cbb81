// Every operation on the CPU device, also with random calls: every bit, with compiled and with
// built-in kernels.
#include "tests/conformance/op_conformance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/cpu_kernels.h"
#include "tests/conformance/random_cases.h"

namespace dorajit::tests {
namespace {

// These lists are limited, because compilations are slow.
constexpr std::size_t kSampledMixes = 16;
constexpr std::size_t kSampledMixesOfBackward = 12;
constexpr std::size_t kFewMixes = 4;
constexpr std::size_t kManyMixes = 80;

class OpsOnCpu : public CpuKernelsTest {
 protected:
  void check_compiled(const Variants& variants, Configs configs, CaseList list) {
    const auto failures = check_op(device_, compiled_, variants, configs, list);
    EXPECT_TRUE(failures.empty()) << join(failures);
    EXPECT_EQ(statistics_.builtin_kernels, 0) << "the host compiler must have been used";
  }

  // On the CPU, configs differ only in their workers.
  void check_builtin(const Variants& variants, CaseList list) {
    const auto failures = check_op(device_, builtin_, variants, Configs::kOneInTurn, list);
    EXPECT_TRUE(failures.empty()) << join(failures);
    EXPECT_EQ(statistics_.compilations, 0);
  }
};

TEST_F(OpsOnCpu, SlicesTogetherRunEveryKernel) {
  constexpr std::size_t kCount = 3;
  const Variants variants = sampled_mixes(kernels::operation("compose"), kSampledMixes);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_LT(statistics_.builtin_kernels, variants.size());
    const auto failures = check_op(device_, builtin_, variants, Configs::kOneInTurn, CaseList::kFew,
                                   {.index = i, .count = kCount});
    EXPECT_TRUE(failures.empty()) << join(failures);
  }
  EXPECT_EQ(statistics_.builtin_kernels, variants.size());
}

TEST_F(OpsOnCpu, ComposeIsExactForEveryTypeMix) {
  check_compiled(kernels::all_variants(kernels::operation("compose")), Configs::kOneInTurn,
                 CaseList::kAll);
}
TEST_F(OpsOnCpu, BackwardIsExactForSampledMixesAndEverySubsetOfOutputs) {
  check_compiled(in_both_broadcasts(with_every_subset(
                     sampled_mixes(kernels::operation("backward"), kSampledMixesOfBackward))),
                 Configs::kOneInTurn, CaseList::kFew);
}
TEST_F(OpsOnCpu, EveryConfigOfTheComprehensiveSpaceIsExact) {
  for (const std::string_view op : {"compose", "compose_inner", "backward"}) {
    check_compiled(in_both_broadcasts({plain_mixes(kernels::operation(op))[1]}),
                   Configs::kComprehensive, CaseList::kFew);
  }
}
TEST_F(OpsOnCpu, BuiltinKernelsAreExactForEveryTypeMix) {
  for (const kernels::Operation* one : operations_with_a_formula()) {
    const bool has_many = one->name.contains("residual") || one->name == "magnitude_backward" ||
                          one->name.starts_with("gated_");
    check_builtin(in_both_broadcasts(has_many ? sampled_mixes(*one, kManyMixes)
                                              : kernels::all_variants(*one)),
                  CaseList::kFew);
  }
}
TEST_F(OpsOnCpu, BuiltinKernelsAreExactForPlainMixesInEveryCase) {
  for (const kernels::Operation* one : operations_with_a_formula()) {
    check_builtin(in_both_broadcasts(plain_forms(*one)),
                  one->num_sums() > 1 ? CaseList::kFew : CaseList::kAll);
  }
}

class OpOnCpu : public OpsOnCpu, public testing::WithParamInterface<std::string_view> {};
class OpWithManyFormsOnCpu : public OpOnCpu {};

INSTANTIATE_TEST_SUITE_P(Operations, OpOnCpu,
                         testing::Values("compose", "compose_inner", "norm_assembly"));
INSTANTIATE_TEST_SUITE_P(Operations, OpWithManyFormsOnCpu,
                         testing::Values("compose_residual", "residual_backward",
                                         "magnitude_backward", "gated_silu", "gated_gelu",
                                         "gated_gelu_tanh", "gated_silu_backward",
                                         "gated_gelu_tanh_backward"));

TEST_P(OpOnCpu, IsExactForSampledMixes) {
  check_compiled(in_both_broadcasts(sampled_mixes(kernels::operation(GetParam()), kSampledMixes)),
                 Configs::kOneInTurn, CaseList::kAll);
}
TEST_P(OpWithManyFormsOnCpu, IsExactForSampledMixes) {
  check_compiled(in_both_broadcasts(
                     with_every_subset(sampled_mixes(kernels::operation(GetParam()), kFewMixes))),
                 Configs::kOneInTurn, CaseList::kFew);
}

// Limited, because compilations are slow.
Variants compiled_variants() {
  Variants variants = in_both_broadcasts({plain_mixes(kernels::operation("backward"))[0],
                                          plain_mixes(kernels::operation("backward"))[1],
                                          plain_mixes(kernels::operation("compose_inner"))[5]});
  for (const kernels::Variant& variant :
       with_only_the_sum(in_both_broadcasts({plain_mixes(kernels::operation("backward"))[1]}))) {
    variants.push_back(variant);
  }
  return variants;
}

class RandomCases : public CpuKernelsTest {};

TEST_F(RandomCases, AreExactWithBuiltinKernels) {
  EXPECT_THAT(check_random_cases(device_, builtin_, 1, 1000), testing::IsEmpty());
}

TEST_F(RandomCases, AreExactWithCompiledKernels) {
  EXPECT_THAT(check_random_cases(device_, compiled_, 1000, 80, compiled_variants()),
              testing::IsEmpty());
  EXPECT_EQ(statistics_.builtin_kernels, 0);
}

}  // namespace
}  // namespace dorajit::tests
