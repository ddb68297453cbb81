#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "kernel_templates/compose_low_rank_config.h"
#include "kernel_templates/config.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/template.h"
#include "tests/variants.h"

namespace dorajit::kernels {
namespace {

using enum ElementType;

using tests::gpu;
using tests::low_rank;

TEST(LowRankConfigs, EveryRankHasAValidDefaultAndCandidates) {
  const Variant variant = low_rank(kBfloat16, kBfloat16);
  for (const int architecture : {80, 90}) {
    const SpaceTraits traits = gpu(architecture);
    for (const std::int64_t rank : {0, 1, 16, 17, 32, 33, 64, 65, 384, 1024}) {
      const Sizes sizes = {4096, 4096, rank};
      const auto space = config_space(variant, traits, 8, SpaceKind::kSlim, sizes);
      EXPECT_EQ(space.front(), default_config(variant, traits, 8, sizes));
      EXPECT_GE(space.size(), 4) << rank;
      EXPECT_LT(space.size(), 20) << rank;
      for (const Config& config : space) {
        EXPECT_EQ(why_config_is_invalid(variant, traits, 8, sizes, config), "") << to_text(config);
        EXPECT_EQ(std::ranges::count(space, config), 1) << to_text(config);
        if (config['s'] == 1) EXPECT_GE(config['k'], rank) << to_text(config);
      }
    }
  }
}

std::set<int> instructions(const Variant& variant, int architecture, int width,
                           const Sizes& sizes) {
  return tests::instructions_of(
      config_space(variant, gpu(architecture), width, SpaceKind::kComprehensive, sizes));
}

TEST(LowRankConfigs, SizesAlignmentAndArchitectureDetermineTheInstruction) {
  const std::set mma = {static_cast<int>(LowRankInstruction::kMma)};
  const std::set wgmma = {static_cast<int>(LowRankInstruction::kWgmma)};
  const Variant narrow = low_rank(kBfloat16, kBfloat16);
  const Variant wide = low_rank(kFloat16, kFloat32);
  Variant mixed = wide;
  mixed.types[kLowRankOut] = kFloat16;
  for (const std::int64_t rank : {33, 64, 72, 384, 1024}) {
    EXPECT_EQ(instructions(narrow, 90, 8, {1, 4096, rank}), wgmma) << rank;
    EXPECT_EQ(instructions(narrow, 90, 4, {1, 4096, rank}), mma) << rank;
    EXPECT_EQ(instructions(narrow, 80, 8, {1, 4096, rank}), mma) << rank;
    EXPECT_EQ(instructions(narrow, 100, 8, {1, 4096, rank}), mma) << rank;
    EXPECT_EQ(instructions(narrow, 90, 8, {1, 4100, rank}), mma) << rank;
    EXPECT_EQ(instructions(wide, 90, 4, {1, 4100, rank}), wgmma) << rank;
    EXPECT_EQ(instructions(wide, 90, 4, {1, 4098, rank}), mma) << rank;
    EXPECT_EQ(instructions(mixed, 90, 4, {1, 4100, rank}), mma) << rank;
    EXPECT_EQ(instructions(mixed, 90, 4, {1, 4104, rank}), wgmma) << rank;
  }
  for (const std::int64_t rank : {0, 1, 32}) {
    EXPECT_EQ(instructions(narrow, 90, 8, {4096, 4096, rank}), mma) << rank;
  }
}

TEST(LowRankConfigs, WgmmaHasAtLeastTwoStagesForEveryMixOfTypes) {
  for (const Variant& variant : all_variants(operation("compose_low_rank"))) {
    const int width = widest_vector(variant, DeviceKind::kCuda);
    const Config config = default_config(variant, gpu(90), width, {4096, 4096, 384});
    EXPECT_EQ(config['i'], static_cast<int>(LowRankInstruction::kWgmma)) << to_text(variant);
    EXPECT_EQ(why_config_is_invalid(variant, gpu(90), width, {4096, 4096, 384}, config), "")
        << to_text(variant) << " " << to_text(config);
  }
  EXPECT_EQ(to_text(default_config(low_rank(kBfloat16, kBfloat16), gpu(90), 8, {1, 4096, 72})),
            "i1-r128-b128-s5-a1-v8");
}

TEST(LowRankConfigs, WgmmaTilesFitRegistersAndSharedMemory) {
  const Variant variant = low_rank(kBfloat16, kBfloat16);
  const auto why = [&](const char* text) {
    const auto config = parse_config(text);
    EXPECT_TRUE(config) << text;
    return why_config_is_invalid(variant, gpu(90), *config);
  };
  EXPECT_EQ(why("i1-r128-b256-s3-a0-v8"), "");
  EXPECT_NE(why("i1-r128-b256-s3-a1-v8"), "");
  EXPECT_NE(why("i1-r64-b128-s3-a0-v8"), "");
  EXPECT_NE(why("i1-r128-b128-s1-a1-v8"), "");
  EXPECT_NE(why("i1-r128-b128-s5-a1-v4"), "");
  EXPECT_NE(why("i1-r128-b128-s6-a1-v8").find("shared"), std::string::npos);
  EXPECT_NE(why("i2-r128-b128-s5-a1-v8"), "");
}

// As cuda/compose_low_rank/mma.cuh splits a tile among warps: strips across, then rows.
TEST(LowRankConfigs, WarpsCoverTheTileOnce) {
  for (const SpaceKind kind : {SpaceKind::kSlim, SpaceKind::kComprehensive}) {
    for (const Config& config : config_space(low_rank(kBfloat16, kBfloat16), gpu(90), 8, kind)) {
      if (config['i'] != 0) continue;
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

TEST(LowRankConfigs, VerificationSizesContainACompleteProgramOfEveryCandidate) {
  const Variant variant = low_rank(kBfloat16, kBfloat16);
  for (const std::int64_t rank : {4, 16, 40, 64, 384, 1024}) {
    const Sizes problem = {4096, 4096, rank};
    const auto sizes = template_of(variant).verification_sizes(variant, problem);
    EXPECT_GE(sizes.size(), 3);
    for (const Config& config : config_space(variant, gpu(90), 8, SpaceKind::kSlim, problem)) {
      EXPECT_GT(sizes.front()[0], config['r'] * std::max(config['t'], 1)) << to_text(config);
      EXPECT_GE(sizes.front()[1], config['b']) << to_text(config);
      EXPECT_NE(sizes.back()[0] % config['r'], 0) << to_text(config);
      EXPECT_NE(sizes.back()[1] % config['b'], 0) << to_text(config);
      for (const Sizes& each : sizes) {
        EXPECT_EQ(why_config_is_invalid(variant, gpu(90), 8, each, config), "")
            << to_text(config) << ", " << to_text(*variant.operation, each);
      }
    }
  }
}

TEST(LowRankConfigs, VerificationSizesGiveLoopingProgramsSeveralTiles) {
  const Variant variant = low_rank(kBfloat16, kBfloat16);
  const auto sizes = template_of(variant).verification_sizes(variant, {4096, 4096, 384});
  EXPECT_TRUE(std::ranges::any_of(sizes, [](const Sizes& each) {
    return (each[0] + 127) / 128 * ((each[1] + 127) / 128) > gpu(90).processors;
  }));
}

TEST(LowRankConfigs, GpusWithoutBfloat16TensorCoresAreRefused) {
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

TEST(LowRankConfigs, FactorsOfDifferentOrWideTypesAreRefused) {
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
