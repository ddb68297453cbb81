// Every op on an NVIDIA GPU: every bit, for every type mix and config.
#include "tests/conformance/op_conformance.h"

#include "tests/conformance/random_cases.h"
#include "tests/gpu/gpu_fixture.h"

namespace dorajit::tests {
namespace {

using kernels::Op;

// Of backward, whose mixes times subsets times broadcasts are too many to compile.
constexpr std::size_t kSampledMixes = 60;
constexpr std::size_t kSampledMixesInFull = 20;  // times twelve configs

class OpsOnGpu : public GpuTest {
 protected:
  void check(const Variants& variants, Configs configs, CaseList list) {
    const auto failures = check_op(*device_, *kernels_, variants, configs, list);
    EXPECT_TRUE(failures.empty()) << join(failures);
  }
};

// f32, and bf16 with f32 channels.
Variants widest_variants(Op op) {
  Variants variants = plain_mixes(op);
  variants.resize(2);
  return in_both_broadcasts(variants);
}

Variants every_type_mix(Op op) { return in_both_broadcasts(kernels::all_variants(op)); }

Variants sampled_gradients(std::size_t mixes) {
  return in_both_broadcasts(with_every_output_subset(sampled_mixes(Op::kBackward, mixes)));
}

std::vector<Variants> plain_mixes_of_all_ops() {
  std::vector<Variants> all;
  for (const kernels::OpSpec& one : kernels::offered_ops()) {
    all.push_back(in_both_broadcasts(with_every_output_subset(plain_mixes(one.op))));
  }
  return all;
}

TEST_F(OpsOnGpu, ComposeWithEveryConfigOfTheComprehensiveSpace) {
  check({plain_mixes(Op::kCompose)[1]}, Configs::kComprehensive, CaseList::kFew);
}
TEST_F(OpsOnGpu, ComposeOfEveryTypeMix) {
  check(every_type_mix(Op::kCompose), Configs::kOneInTurn, CaseList::kFew);
}
TEST_F(OpsOnGpu, ComposeInnerOfEveryTypeMix) {
  check(every_type_mix(Op::kComposeInner), Configs::kOneInTurn, CaseList::kFew);
}
TEST_F(OpsOnGpu, NormAssemblyOfEveryTypeMix) {
  check(kernels::all_variants(Op::kNormAssembly), Configs::kOneInTurn, CaseList::kFew);
}
TEST_F(OpsOnGpu, BackwardOfSampledTypeMixesWithEverySubsetOfItsOutputs) {
  check(sampled_gradients(kSampledMixes), Configs::kOneInTurn, CaseList::kFew);
}
TEST_F(OpsOnGpu, ResidualFormsOfSampledTypeMixesWithEverySubsetOfTheirOutputs) {
  for (const Op op : {Op::kComposeResidual, Op::kComposeBiasedResidual, Op::kResidualBackward}) {
    check(in_both_broadcasts(with_every_output_subset(sampled_mixes(op, kSampledMixes / 2))),
          Configs::kOneInTurn, CaseList::kFew);
  }
}
TEST_F(OpsOnGpu, PlainMixesInEveryCase) {
  for (const Variants& variants : plain_mixes_of_all_ops()) {
    check(variants, Configs::kOneInTurn, CaseList::kAll);
  }
}

TEST_F(OpsOnGpu, RandomCalls) {
  Variants variants = {plain_mixes(Op::kCompose)[1], plain_mixes(Op::kComposeInner)[5]};
  for (const kernels::Variant& variant :
       with_every_output_subset({plain_mixes(Op::kBackward)[0], plain_mixes(Op::kBackward)[1]})) {
    variants.push_back(variant);
  }
  variants = in_both_broadcasts(variants);
  variants.push_back(plain_mixes(Op::kNormAssembly)[0]);
  const auto failures = check_random_cases(*device_, *kernels_, 1, 2000, variants);
  EXPECT_TRUE(failures.empty()) << join(failures);
}

// The same with every config of the spaces: minutes each, for a soak.
class OpsOnGpuInFull : public OpsOnGpu {};

TEST_F(OpsOnGpuInFull, ComposeWithEveryConfigOfTheComprehensiveSpace) {
  check(widest_variants(Op::kCompose), Configs::kComprehensive, CaseList::kAll);
}
TEST_F(OpsOnGpuInFull, ComposeInnerWithEveryConfigOfTheComprehensiveSpace) {
  check(widest_variants(Op::kComposeInner), Configs::kComprehensive, CaseList::kFew);
}
TEST_F(OpsOnGpuInFull, NormAssemblyWithEveryConfigOfTheComprehensiveSpace) {
  check(widest_variants(Op::kNormAssembly), Configs::kComprehensive, CaseList::kFew);
}
TEST_F(OpsOnGpuInFull, BackwardWithEveryConfigOfTheComprehensiveSpace) {
  check(widest_variants(Op::kBackward), Configs::kComprehensive, CaseList::kFew);
}
TEST_F(OpsOnGpuInFull, ResidualFormsWithEveryConfigOfTheComprehensiveSpace) {
  for (const Op op : {Op::kComposeResidual, Op::kComposeBiasedResidual, Op::kResidualBackward}) {
    check(widest_variants(op), Configs::kComprehensive, CaseList::kFew);
  }
}
TEST_F(OpsOnGpuInFull, ComposeOfEveryTypeMix) {
  check(every_type_mix(Op::kCompose), Configs::kSlim, CaseList::kFew);
}
TEST_F(OpsOnGpuInFull, ComposeInnerOfEveryTypeMix) {
  check(every_type_mix(Op::kComposeInner), Configs::kSlim, CaseList::kFew);
}
TEST_F(OpsOnGpuInFull, NormAssemblyOfEveryTypeMix) {
  check(kernels::all_variants(Op::kNormAssembly), Configs::kSlim, CaseList::kFew);
}
TEST_F(OpsOnGpuInFull, BackwardOfSampledTypeMixesWithEverySubsetOfItsOutputs) {
  check(sampled_gradients(kSampledMixesInFull), Configs::kSlim, CaseList::kFew);
}
TEST_F(OpsOnGpuInFull, PlainMixesInEveryCase) {
  for (const Variants& variants : plain_mixes_of_all_ops()) {
    check(variants, Configs::kSlim, CaseList::kAll);
  }
}

}  // namespace
}  // namespace dorajit::tests
