#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernel_templates/config.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/template.h"
#include "kernel_templates/weight_norm_config.h"
#include "tests/variants.h"

namespace dorajit::kernels {
namespace {

using enum ElementType;

using tests::gpu;
using tests::weight_norm;

std::set<int> instructions(const Variant& variant, const SpaceTraits& traits, int width) {
  return tests::instructions_of(config_space(variant, traits, width, SpaceKind::kComprehensive));
}

TEST(WeightNormConfigs, TypesAndArchitectureDetermineTheInstruction) {
  const Variant halves = weight_norm(kBfloat16, kBfloat16, kBfloat16);
  const Variant mixed = weight_norm(kBfloat16, kBfloat16, kFloat16);
  constexpr int kScalar = static_cast<int>(NormInstruction::kScalar);
  constexpr int kMma = static_cast<int>(NormInstruction::kMma);
  constexpr int kWgmma = static_cast<int>(NormInstruction::kWgmma);
  constexpr int kWgmmaStream = static_cast<int>(NormInstruction::kWgmmaStream);
  EXPECT_EQ(instructions(halves, gpu(75), 8), std::set{kScalar});
  EXPECT_EQ(instructions(halves, gpu(80), 8), std::set{kMma});
  EXPECT_EQ(instructions(halves, gpu(90), 8), (std::set{kWgmma, kWgmmaStream}));
  EXPECT_EQ(instructions(halves, gpu(90), 4), std::set{kMma});
  EXPECT_EQ(instructions(halves, gpu(120), 8), std::set{kMma});
  EXPECT_EQ(instructions(mixed, gpu(90), 8), (std::set{kWgmma, kWgmmaStream}));
  EXPECT_EQ(instructions(mixed, gpu(90), 1), std::set{kMma});
  EXPECT_EQ(instructions(mixed, gpu(75), 4), std::set{kScalar});
  const Variant wide = weight_norm(kFloat32, kFloat32, kFloat32);
  EXPECT_EQ(instructions(wide, gpu(90), 4), (std::set{kWgmma, kWgmmaStream}));
  EXPECT_EQ(instructions(wide, gpu(90), 2), std::set{kMma});
  EXPECT_EQ(instructions(wide, gpu(80), 4), std::set{kMma});
  EXPECT_EQ(instructions(weight_norm(kFloat32, kBfloat16, kBfloat16), gpu(90), 4), std::set{kMma});
  EXPECT_EQ(instructions(weight_norm(kFloat64, kFloat64, kFloat64), gpu(90), 2), std::set{kScalar});
  const Config tensor = default_config(halves, gpu(90), 8);
  EXPECT_NE(why_config_is_invalid(halves, gpu(80), tensor), "");
  EXPECT_NE(why_config_is_invalid(halves, gpu(90), default_config(halves, gpu(75), 8)), "");
}

TEST(WeightNormConfigs, PairsOfFloat16SupportEveryRank) {
  const Variant wide = weight_norm(kFloat32, kFloat32, kFloat32);
  for (const std::int64_t rank : {0, 1, 384, 385, 1024}) {
    for (const int architecture : {75, 80, 90, 120}) {
      const SpaceTraits traits = gpu(architecture);
      const Sizes sizes{4096, 4096, rank};
      EXPECT_EQ(
          why_config_is_invalid(wide, traits, 4, sizes, default_config(wide, traits, 4, sizes)),
          "");
    }
  }
}

TEST(WeightNormConfigs, FactorsThatAreSplitTakeAWorkspaceOnAGpuOnly) {
  const Variant wide = weight_norm(kFloat32, kFloat32, kFloat32);
  const Sizes sizes{100, 256, 16};
  EXPECT_EQ(workspace_bytes(wide, DeviceKind::kCpu, sizes), 0);
  EXPECT_GE(workspace_bytes(wide, DeviceKind::kCuda, sizes), 3 * 16 * (100 + 256) * 2);
}

// Wide factors are converted, so that they do not limit the vectors of W.
TEST(WeightNormConfigs, FactorsThatAreSplitDoNotLimitVectors) {
  EXPECT_EQ(widest_vector(weight_norm(kBfloat16, kFloat32, kFloat32), DeviceKind::kCuda), 8);
  EXPECT_EQ(widest_vector(weight_norm(kFloat32, kFloat32, kFloat32), DeviceKind::kCuda), 4);
}

TEST(WeightNormConfigs, StagesThatSplitFactorsRunBeforeTheKernel) {
  KernelArguments arguments{
      .sizes = {4096, 4096, 16}, .workspace = nullptr, .scalars = {0.5}, .operands = {}};
  const Variant wide = weight_norm(kFloat32, kFloat32, kFloat32);
  const Config config = default_config(wide, gpu(90), 4);
  const LaunchShape shape = launch_shape(wide, config, arguments, 132);
  EXPECT_EQ(shape.run.programs(), 16);
  EXPECT_EQ(shape.later[0].programs(), 16 * 4 + 4096 / 32);
  EXPECT_EQ(shape.later[1].programs(), 132);
  EXPECT_GT(shape.later[2].programs(), 0);
  arguments.scalars[0] = 0;  // W alone
  const LaunchShape alone = launch_shape(wide, config, arguments, 132);
  EXPECT_EQ(alone.run.programs() + alone.later[0].programs(), 0);
  EXPECT_EQ(alone.later[1].programs(), 132);
}

TEST(WeightNormConfigs, ConfigWhoseTilesDoNotFitTheRankIsInvalid) {
  const Variant halves = weight_norm(kBfloat16, kBfloat16, kBfloat16);
  const auto config = parse_config("i2-r128-b128-k64-s6-u2-p2-v8");
  ASSERT_TRUE(config);
  EXPECT_EQ(why_config_is_invalid(halves, gpu(90), 8, {4096, 4096, 384}, *config), "");
  EXPECT_NE(why_config_is_invalid(halves, gpu(90), 8, {4096, 4096, 448}, *config).find("shared"),
            std::string::npos);
}

TEST(WeightNormConfigs, FactorsLargerThanSharedMemoryAreStreamed) {
  const Variant halves = weight_norm(kBfloat16, kBfloat16, kBfloat16);
  const auto config = parse_config("i4-r128-b128-k64-s3-u2-p2-v8");
  ASSERT_TRUE(config);
  for (const std::int64_t rank : {385, 448, 768, 1024}) {
    EXPECT_EQ(why_config_is_invalid(halves, gpu(90), 8, {4096, 4096, rank}, *config), "");
  }
  EXPECT_NE(why_config_is_invalid(halves, gpu(90), 8, {4096, 4096, 384}, *config), "")
      << "six blocks of the rank stay in shared memory";
  EXPECT_NE(why_config_is_invalid(halves, gpu(80), *config), "");
  for (const int stages : {3, 4}) {
    const WeightNormConfig own{.instruction = NormInstruction::kWgmmaStream,
                               .rows = 128,
                               .columns = 128,
                               .rank_step = 64,
                               .stages = stages,
                               .weight_units = 2};
    EXPECT_LE(wgmma_shared_bytes(own, 1024), kWgmmaSharedLimit);
    EXPECT_GE(wgmma_resident_blocks(own, 1024), 4);
  }
}

TEST(WeightNormConfigs, WorkspaceFitsEveryConfigAndIsAtMostEightSumsPerRow) {
  const Variant halves = weight_norm(kBfloat16, kBfloat16, kBfloat16);
  EXPECT_EQ(workspace_bytes(halves, DeviceKind::kCuda, {100, 256, 16}), 0);
  for (const std::int64_t columns : {257, 1000, 4096, 14336, 262144, 262145, 1 << 20}) {
    EXPECT_LE(workspace_bytes(halves, DeviceKind::kCuda, {100, columns, 16}), 8 * 4 * 100);
    for (const int parts : {1, 2, 4, 8}) {
      EXPECT_LE(norm_parts(columns, parts).count * 100 * 4,
                std::max<std::int64_t>(
                    workspace_bytes(halves, DeviceKind::kCuda, {100, columns, 16}), 400));
    }
  }
}

// Of one column, w + s b a cancels in some row: its error in units of itself has no bound.
TEST(WeightNormConfigs, FewColumnsAreVerifiedWithASpanMore) {
  const Variant singles = weight_norm(kFloat32, kFloat32, kFloat32);
  for (const std::int64_t columns : {1, 7, 40, 255}) {
    for (const Sizes& sizes : template_of(singles).verification_sizes(singles, {7, columns, 4})) {
      EXPECT_GE(sizes[kNormColumns], 250);
    }
  }
}

TEST(WeightNormConfigs, PartsAreNodesOfTheTreeAndCoverTheRow) {
  for (const std::int64_t columns : {0, 1, 255, 256, 257, 4096, 14336, 262144, 262145, 1 << 20}) {
    for (const int most : {1, 2, 4, 8}) {
      const NormParts parts = norm_parts(columns, most);
      EXPECT_LE(parts.count, most);
      EXPECT_GE(parts.count, 1);
      EXPECT_GE(parts.count * parts.columns(), columns);
      if (parts.count > 1) EXPECT_TRUE((parts.spans & (parts.spans - 1)) == 0);
    }
  }
}

TEST(WeightNormConfigs, OneProgramPerMultiprocessorFillsItsSharedMemory) {
  const Variant halves = weight_norm(kBfloat16, kBfloat16, kBfloat16);
  KernelArguments arguments{};
  arguments.sizes[0] = 28672;
  arguments.sizes[1] = 8192;
  arguments.sizes[2] = 384;
  const auto filled = parse_config("i2-r128-b128-k64-s6-u2-p8-v8");
  ASSERT_TRUE(filled);
  const LaunchShape tasks = launch_shape(halves, *filled, arguments, 132);
  EXPECT_EQ(tasks.run.programs(), 132);
  EXPECT_EQ(tasks.run.grid_y, 1);
  EXPECT_EQ(launch_shape(halves, *filled, arguments, 4096).run.programs(), 224 * 8);
  const auto plain = parse_config("i1-r64-b64-k32-s3-u0-p8-v8");
  ASSERT_TRUE(plain);
  const LaunchShape parts = launch_shape(halves, *plain, arguments, 132);
  EXPECT_EQ(parts.run.grid_x, 448);
  EXPECT_EQ(parts.run.grid_y, 8);
}

TEST(WeightNormConfigs, GainRequiresAMagnitude) {
  Variant variant = weight_norm(kBfloat16, kBfloat16, kBfloat16);
  variant.types[6] = kFloat32;
  EXPECT_FALSE(is_supported(variant));
  variant.types[3] = kFloat32;
  EXPECT_TRUE(is_supported(variant));
  variant.types[6] = kAbsent;
  EXPECT_FALSE(is_supported(variant));
}

}  // namespace
}  // namespace dorajit::kernels
