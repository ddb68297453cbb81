#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "kernel_templates/compose_low_rank_config.h"
#include "kernel_templates/config_limits.h"
#include "kernel_templates/config_text.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/verification_sizes.h"

namespace dorajit::kernels {
namespace {

using enum ElementType;

Variant low_rank(ElementType factor, ElementType result) {
  return {.operation = &operation("compose_low_rank"),
          .types = {factor, factor, result, kFloat32, kAbsent, result, kAbsent}};
}

SpaceTraits gpu(int architecture) {
  return {.kind = DeviceKind::kCuda, .processors = 132, .architecture = architecture};
}

constexpr SpaceTraits kCpu{.kind = DeviceKind::kCpu, .processors = 6};

TEST(LowRankConfigs, SpacesHoldValidConfigsOnceTheDefaultFirst) {
  for (const Variant& variant : {low_rank(kBfloat16, kBfloat16), low_rank(kFloat16, kFloat32)}) {
    for (const SpaceTraits& traits : {gpu(80), gpu(86), gpu(90), gpu(100), gpu(120), kCpu}) {
      for (const int width : {1, 2, 4, 8}) {
        for (const SpaceKind kind : {SpaceKind::kSlim, SpaceKind::kComprehensive}) {
          const auto space = config_space(variant, traits, width, kind);
          ASSERT_FALSE(space.empty());
          EXPECT_EQ(space.front(), default_config(variant, traits, width));
          for (const Config& config : space) {
            EXPECT_EQ(why_config_is_invalid(variant, traits, config), "") << to_text(config);
            EXPECT_EQ(std::ranges::count(space, config), 1) << to_text(config);
            EXPECT_LE(config['v'], width);
            EXPECT_EQ(parse_config(to_text(config)), config);
          }
        }
      }
    }
  }
}

TEST(LowRankConfigs, TheDefaultServesEveryRankAndOthersOneStepOrMore) {
  const Variant variant = low_rank(kBfloat16, kBfloat16);
  const auto space = config_space(variant, gpu(90), 8, SpaceKind::kSlim);
  for (const std::int64_t rank : {0, 1, 16, 17, 64, 65, 384, 1024}) {
    int fitting = 0;
    for (const Config& config : space) {
      const bool fits =
          why_config_is_invalid(variant, gpu(90), 8, {4096, 4096, rank}, config).empty();
      if (config == space.front()) EXPECT_TRUE(fits) << rank;
      if (config['s'] == 1 && config['k'] < rank) EXPECT_FALSE(fits) << to_text(config);
      fitting += fits ? 1 : 0;
    }
    EXPECT_GT(fitting, 4) << rank;
    EXPECT_LT(fitting, 20) << rank;
  }
}

// As cuda/compose_low_rank.cuh shares a tile among warps: strips across, then rows.
TEST(LowRankConfigs, WarpsCoverTheTileOnce) {
  for (const SpaceKind kind : {SpaceKind::kSlim, SpaceKind::kComprehensive}) {
    for (const Config& config : config_space(low_rank(kBfloat16, kBfloat16), gpu(90), 8, kind)) {
      const int strips = config['b'] / kLowRankWarpColumns;
      const int warp_rows = config['r'] * strips / config['w'];
      std::set<std::pair<int, int>> covered;
      for (int warp = 0; warp < config['w']; ++warp) {
        const int row = warp / strips * warp_rows;
        EXPECT_LE(row + warp_rows, config['r']) << to_text(config);
        covered.insert({row, warp % strips});
      }
      EXPECT_EQ(covered.size() * static_cast<std::size_t>(warp_rows),
                static_cast<std::size_t>(config['r'] * strips))
          << to_text(config);
    }
  }
  const auto too_few = parse_config("r16-b128-w1-k16-s1-p0-t1-v8");
  ASSERT_TRUE(too_few);
  EXPECT_NE(why_config_is_invalid(low_rank(kBfloat16, kBfloat16), gpu(90), *too_few), "");
}

TEST(LowRankConfigs, VerificationHasAWholeProgramOfEveryCandidate) {
  const Variant variant = low_rank(kBfloat16, kBfloat16);
  for (const std::int64_t rank : {4, 16, 64, 384}) {
    const auto sizes = verification_sizes(variant, {4096, 4096, rank});
    for (const Config& config : config_space(variant, gpu(90), 8, SpaceKind::kSlim)) {
      EXPECT_GT(sizes.front()[0], config['r'] * config['t']) << to_text(config);
      EXPECT_GE(sizes.front()[1], config['b']) << to_text(config);
    }
  }
}

TEST(LowRankConfigs, GpusWithoutTensorCoresForBfloat16AreRefusedByName) {
  const Variant variant = low_rank(kFloat16, kFloat16);
  const std::string why =
      why_config_is_invalid(variant, gpu(75), 8, {64, 64, 16}, default_config(variant, gpu(75), 8));
  EXPECT_NE(why.find("compose_low_rank"), std::string::npos) << why;
  EXPECT_NE(why.find("sm_80"), std::string::npos) << why;
}

TEST(LowRankConfigs, TilesThatDoNotFitSharedMemoryAreInvalid) {
  const Variant variant = low_rank(kBfloat16, kBfloat16);
  const auto config = parse_config("r128-b256-w8-k64-s3-p0-t1-v8");
  ASSERT_TRUE(config);
  EXPECT_EQ(why_config_is_invalid(variant, gpu(90), *config), "");
  EXPECT_NE(why_config_is_invalid(variant, gpu(120), *config).find("shared"), std::string::npos);
}

TEST(LowRankConfigs, FactorsHaveOneTypeOf16Bits) {
  EXPECT_TRUE(is_supported(low_rank(kFloat16, kFloat32)));
  EXPECT_FALSE(is_supported(low_rank(kFloat32, kFloat32)));
  EXPECT_FALSE(is_supported(low_rank(kFloat64, kFloat64)));
  Variant mixed = low_rank(kBfloat16, kBfloat16);
  mixed.types[1] = kFloat16;
  EXPECT_FALSE(is_supported(mixed));
  EXPECT_NE(mixed.operation->why_unsupported(mixed).find("`lora_B`"), std::string_view::npos);
}

}  // namespace
}  // namespace dorajit::kernels
