#include "kernel_templates/spaces.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernel_templates/config_text.h"

namespace dorajit::kernels {
namespace {

const SpaceTraits kGpu{.kind = DeviceKind::kCuda, .processors = 132};
const SpaceTraits kCpu{.kind = DeviceKind::kCpu, .processors = 8};
constexpr std::size_t kMostSlimConfigs = 12;

TEST(Spaces, HoldOnlyValidConfigsWithoutRepeatsTheDefaultFirst) {
  for (const Variant& variant : all_variants(Op::kCompose)) {
    for (const SpaceTraits& traits : {kGpu, kCpu}) {
      for (int width = widest_vector(variant, traits.kind); width >= 1; width /= 2) {
        for (const SpaceKind kind : {SpaceKind::kSlim, SpaceKind::kComprehensive}) {
          const auto space = config_space(variant, traits, width, kind);
          ASSERT_FALSE(space.empty());
          EXPECT_EQ(space.front(), default_config(variant, traits, width));
          for (std::size_t i = 0; i < space.size(); ++i) {
            const Config& config = space[i];
            EXPECT_TRUE(traits.kind == DeviceKind::kCuda ? is_valid_for_cuda(config)
                                                         : is_valid_for_cpu(config))
                << to_text(config);
            EXPECT_LE(config.vector_width, width);
            EXPECT_EQ(std::ranges::count(space, config), 1) << to_text(config);
          }
          if (kind == SpaceKind::kSlim) EXPECT_LE(space.size(), kMostSlimConfigs);
          if (kind == SpaceKind::kComprehensive) EXPECT_GT(space.size(), kMostSlimConfigs);
        }
      }
    }
  }
}

TEST(Spaces, VectorsAreSixteenBytesOfTheWidestMatrixAndAtMostEightElements) {
  using enum ElementType;
  const auto width = [](ElementType lora, ElementType gain) {
    return widest_vector({.op = Op::kCompose, .types = {lora, kBfloat16, gain, kBfloat16}},
                         DeviceKind::kCuda);
  };
  EXPECT_EQ(width(kBfloat16, kBfloat16), 8);
  EXPECT_EQ(width(kBfloat16, kFloat32), 8) << "the gain is read once and does not narrow the rest";
  EXPECT_EQ(width(kFloat32, kBfloat16), 4);
  EXPECT_EQ(widest_vector({.op = Op::kCompose, .types = {kFloat64, kFloat64, kFloat64, kFloat64}},
                          DeviceKind::kCuda),
            2);
}

TEST(Spaces, CpuConfigsThatDifferInWorkersShareTheirCode) {
  Config config = default_config({}, kCpu, 1);
  Config other = config;
  other.num_warps = 1;
  EXPECT_NE(config, other);
  EXPECT_EQ(compiled_part(config, DeviceKind::kCpu), compiled_part(other, DeviceKind::kCpu));
  EXPECT_NE(compiled_part(config, DeviceKind::kCuda), compiled_part(other, DeviceKind::kCuda));
}

TEST(Spaces, OneProcessorMakesNoTwoWorkers) {
  for (const Config& config : config_space({}, {.kind = DeviceKind::kCpu, .processors = 1}, 1,
                                           SpaceKind::kComprehensive)) {
    EXPECT_EQ(config.num_warps, 1);
  }
}

}  // namespace
}  // namespace dorajit::kernels
