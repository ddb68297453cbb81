// The lists that conformance is tested over are complete.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "kernel_templates/spaces.h"
#include "tests/conformance/case_lists.h"
#include "tests/conformance/placement.h"
#include "tests/conformance/variant_lists.h"

namespace dorajit::tests {
namespace {

using kernels::Variant;
using enum kernels::ElementType;

std::size_t type_pairs_of(const Variants& variants) {
  std::set<std::tuple<std::size_t, std::size_t, kernels::ElementType, kernels::ElementType>> pairs;
  for (const Variant& variant : variants) {
    const auto types = variant.operand_types();
    for (std::size_t a = 0; a < types.size(); ++a) {
      for (std::size_t b = a + 1; b < types.size(); ++b) pairs.emplace(a, b, types[a], types[b]);
    }
  }
  return pairs.size();
}

TEST(Coverage, SampledMixesContainEveryPairOfTypes) {
  constexpr std::size_t kMax = 30;
  for (const kernels::Operation* one : kernels::offered_operations()) {
    const Variants sampled = sampled_mixes(*one, kMax);
    EXPECT_EQ(sampled.size(), std::min(kMax, kernels::all_variants(*one).size()));
    EXPECT_EQ(type_pairs_of(sampled), type_pairs_of(kernels::all_variants(*one)));
    EXPECT_TRUE(std::ranges::all_of(sampled, kernels::is_supported));
    for (const Variant& variant : sampled) EXPECT_EQ(std::ranges::count(sampled, variant), 1);
  }
}

TEST(Coverage, OutputsOfBackwardHaveSevenSubsetsInTwoBroadcasts) {
  const Variants subsets = with_every_subset({plain_mixes(kernels::operation("backward"))[1]});
  EXPECT_EQ(subsets.size(), 7U);
  const Variants both = in_both_broadcasts(subsets);
  EXPECT_EQ(both.size(), 14U);
  EXPECT_TRUE(std::ranges::all_of(both, kernels::is_supported));
  const Variants sums = with_only_the_sum(plain_mixes(kernels::operation("backward")));
  EXPECT_EQ(sums.size(), plain_mixes(kernels::operation("backward")).size());
  EXPECT_TRUE(std::ranges::all_of(sums, kernels::is_supported));
  EXPECT_TRUE(with_only_the_sum(plain_mixes(kernels::operation("compose"))).empty());
}

TEST(Coverage, PlacementsOverlapEveryInputAndEveryPairOfInputs) {
  const Variant same{.operation = &kernels::operation("backward"), .types = {}};
  EXPECT_EQ(placements(same).size(), 1U + 4 + 2);
  const Variant mixed{.operation = &kernels::operation("backward"),
                      .types = {kFloat32, kBfloat16, kFloat32, kFloat32, kFloat16, kFloat32}};
  EXPECT_EQ(placements(mixed).size(), 1U + 1);
  const Variant norm{.operation = &kernels::operation("norm_assembly"), .types = {}};
  EXPECT_EQ(placements(norm).size(), 1U + 3);
}

TEST(Coverage, CasesUseTheWidestAndTheNarrowestVectors) {
  constexpr auto kCuda = kernels::DeviceKind::kCuda;
  for (const kernels::Operation* one : kernels::offered_operations()) {
    for (const Variant& variant : in_both_broadcasts(plain_forms(*one))) {
      const auto has_width = [&](CaseList list, int width) {
        return std::ranges::any_of(case_list(variant, list), [&](const CaseSpec& spec) {
          return vector_width(variant, spec, kCuda) == width;
        });
      };
      const int widest = kernels::widest_vector(variant, kCuda);
      EXPECT_TRUE(has_width(CaseList::kFew, widest)) << to_text(variant);
      EXPECT_TRUE(has_width(CaseList::kAll, widest)) << to_text(variant);
      EXPECT_TRUE(has_width(CaseList::kAll, 1)) << to_text(variant);
    }
  }
}

}  // namespace
}  // namespace dorajit::tests
