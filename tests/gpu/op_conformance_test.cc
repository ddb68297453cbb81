// Every operation on an NVIDIA GPU: every bit, for every type mix and config.
#include "tests/conformance/op_conformance.h"

#include "tests/conformance/random_cases.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/gpu/slices.h"

namespace dorajit::tests {
namespace {

// For backward, whose mixes times subsets times broadcasts are too many to compile.
constexpr std::size_t kSampledMixes = 60;
constexpr std::size_t kSampledMixesInFull = 20;  // times twelve configs

class OpsOnGpu : public GpuTest {
 protected:
  void check(const Variants& variants, Configs configs, CaseList list, const Slice& slice = {}) {
    const auto failures = check_op(*device_, *kernels_, variants, configs, list, slice);
    EXPECT_TRUE(failures.empty()) << join(failures);
  }
};

// f32, and bf16 with f32 channels.
Variants widest_variants(const kernels::Operation& op) {
  Variants variants = plain_mixes(op);
  variants.resize(2);
  return in_both_broadcasts(variants);
}

Variants every_type_mix(const kernels::Operation& op) {
  return in_both_broadcasts(kernels::all_variants(op));
}

Variants sampled_gradients(std::size_t mixes) {
  return in_both_broadcasts(
      with_every_subset(sampled_mixes(kernels::operation("backward"), mixes)));
}

std::vector<Variants> plain_mixes_of_all_ops() {
  std::vector<Variants> all;
  for (const kernels::Operation* one : operations_with_a_formula()) {
    all.push_back(in_both_broadcasts(plain_forms(*one)));
  }
  return all;
}

TEST_F(OpsOnGpu, ComposeIsExactWithEveryConfigOfTheComprehensiveSpace) {
  check({plain_mixes(kernels::operation("compose"))[1]}, Configs::kComprehensive, CaseList::kFew);
}
TEST_F(OpsOnGpu, ComposeIsExactForEveryTypeMix) {
  check(every_type_mix(kernels::operation("compose")), Configs::kOneInTurn, CaseList::kFew);
}
TEST_F(OpsOnGpu, ComposeInnerIsExactForEveryTypeMix) {
  check(every_type_mix(kernels::operation("compose_inner")), Configs::kOneInTurn, CaseList::kFew);
}
TEST_F(OpsOnGpu, NormAssemblyIsExactForEveryTypeMix) {
  check(kernels::all_variants(kernels::operation("norm_assembly")), Configs::kOneInTurn,
        CaseList::kFew);
}
TEST_F(OpsOnGpu, GatedActivationsAreExactForSampledTypeMixes) {
  for (const std::string_view op :
       {"gated_silu", "gated_gelu", "gated_gelu_tanh", "gated_silu_backward"}) {
    check(in_both_broadcasts(sampled_mixes(kernels::operation(op), 6)), Configs::kOneInTurn,
          CaseList::kFew);
  }
}
TEST_F(OpsOnGpu, BackwardIsExactForSampledTypeMixesAndEverySubsetOfOutputs) {
  check(sampled_gradients(kSampledMixes), Configs::kOneInTurn, CaseList::kFew);
}
TEST_F(OpsOnGpu, ResidualFormsAreExactForSampledTypeMixesAndEverySubsetOfOutputs) {
  for (const std::string_view op :
       {"compose_residual", "residual_backward", "magnitude_backward"}) {
    check(in_both_broadcasts(
              with_every_subset(sampled_mixes(kernels::operation(op), kSampledMixes / 2))),
          Configs::kOneInTurn, CaseList::kFew);
  }
}
TEST_F(OpsOnGpu, PlainMixesAreExactInEveryCase) {
  for (const Variants& variants : plain_mixes_of_all_ops()) {
    check(variants, Configs::kOneInTurn, CaseList::kAll);
  }
}

TEST_F(OpsOnGpu, RandomCallsAreExact) {
  Variants variants = {plain_mixes(kernels::operation("compose"))[1],
                       plain_mixes(kernels::operation("compose_inner"))[5]};
  for (const kernels::Variant& variant :
       with_every_subset({plain_mixes(kernels::operation("backward"))[0],
                          plain_mixes(kernels::operation("backward"))[1]})) {
    variants.push_back(variant);
  }
  variants = in_both_broadcasts(variants);
  variants.push_back(plain_mixes(kernels::operation("norm_assembly"))[0]);
  const auto failures = check_random_cases(*device_, *kernels_, 1, 2000, variants);
  EXPECT_TRUE(failures.empty()) << join(failures);
}

// The same with every config of the spaces: minutes each, for a soak.
class OpsOnGpuInFull : public OpsOnGpu, public testing::WithParamInterface<Slice> {};
INSTANTIATE_TEST_SUITE_P(Slices, OpsOnGpuInFull, slices());

TEST_P(OpsOnGpuInFull, ComposeIsExactWithEveryConfigOfTheComprehensiveSpace) {
  check(widest_variants(kernels::operation("compose")), Configs::kComprehensive, CaseList::kAll,
        GetParam());
}
TEST_P(OpsOnGpuInFull, ComposeInnerIsExactWithEveryConfigOfTheComprehensiveSpace) {
  check(widest_variants(kernels::operation("compose_inner")), Configs::kComprehensive,
        CaseList::kFew, GetParam());
}
TEST_P(OpsOnGpuInFull, NormAssemblyIsExactWithEveryConfigOfTheComprehensiveSpace) {
  check(widest_variants(kernels::operation("norm_assembly")), Configs::kComprehensive,
        CaseList::kFew, GetParam());
}
TEST_P(OpsOnGpuInFull, BackwardIsExactWithEveryConfigOfTheComprehensiveSpace) {
  check(widest_variants(kernels::operation("backward")), Configs::kComprehensive, CaseList::kFew,
        GetParam());
}
TEST_P(OpsOnGpuInFull, ResidualFormsAreExactWithEveryConfigOfTheComprehensiveSpace) {
  for (const std::string_view op :
       {"compose_residual", "residual_backward", "magnitude_backward"}) {
    check(widest_variants(kernels::operation(op)), Configs::kComprehensive, CaseList::kFew,
          GetParam());
  }
}
TEST_P(OpsOnGpuInFull, GatedActivationsAreExactWithEveryConfigOfTheComprehensiveSpace) {
  for (const std::string_view op : {"gated_silu", "gated_gelu", "gated_silu_backward"}) {
    check(widest_variants(kernels::operation(op)), Configs::kComprehensive, CaseList::kFew,
          GetParam());
  }
}
TEST_P(OpsOnGpuInFull, ComposeIsExactForEveryTypeMix) {
  check(every_type_mix(kernels::operation("compose")), Configs::kSlim, CaseList::kFew, GetParam());
}
TEST_P(OpsOnGpuInFull, ComposeInnerIsExactForEveryTypeMix) {
  check(every_type_mix(kernels::operation("compose_inner")), Configs::kSlim, CaseList::kFew,
        GetParam());
}
TEST_P(OpsOnGpuInFull, NormAssemblyIsExactForEveryTypeMix) {
  check(kernels::all_variants(kernels::operation("norm_assembly")), Configs::kSlim, CaseList::kFew,
        GetParam());
}
TEST_P(OpsOnGpuInFull, BackwardIsExactForSampledTypeMixesAndEverySubsetOfOutputs) {
  check(sampled_gradients(kSampledMixesInFull), Configs::kSlim, CaseList::kFew, GetParam());
}
TEST_P(OpsOnGpuInFull, PlainMixesAreExactInEveryCase) {
  for (const Variants& variants : plain_mixes_of_all_ops()) {
    check(variants, Configs::kSlim, CaseList::kAll, GetParam());
  }
}

}  // namespace
}  // namespace dorajit::tests
