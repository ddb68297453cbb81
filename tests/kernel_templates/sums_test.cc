// Sums along the tree, and their split into partial sums.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernel_templates/cpu/tile_sums.h"
#include "kernel_templates/math/pairwise_sum.h"
#include "kernel_templates/partial_sums.h"
#include "kernel_templates/reference.h"
#include "kernel_templates/template.h"
#include "kernel_templates/templates/streaming_configs.h"

namespace dorajit::kernels {
namespace {

constexpr int kLevels = 12;

std::vector<float> random_terms(std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::normal_distribution<float> distribution;
  std::vector<float> terms(count);
  for (float& term : terms) term = distribution(random);
  return terms;
}

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(Sums, AbsentTermDoesNotChangeTheSum) {
  for (const float other : {0.0F, -0.0F, 1.0F, -1e-45F, INFINITY, -INFINITY}) {
    EXPECT_EQ(bits(absent_term<float>() + other), bits(other)) << other;
    EXPECT_EQ(bits(other + absent_term<float>()), bits(other)) << other;
  }
}

TEST(Sums, EveryEvaluationOfTheTreeGivesTheSameRoot) {
  for (std::size_t count = 1; count <= 700; ++count) {
    std::vector<float> terms = random_terms(count);
    const float expected = sum_tree(std::span<const float>(terms));
    PairwiseSum<float, kLevels> pairwise;
    TileSum<float, kLevels, 1> tile;
    for (std::size_t i = 0; i < count; ++i) {
      float node[1] = {terms[i]};
      pairwise.push(static_cast<long long>(i), node);
      node[0] = terms[i];
      tile.push(static_cast<long long>(i), node, 1);
    }
    float root[1];
    pairwise.root(static_cast<long long>(count), root);
    ASSERT_EQ(bits(root[0]), bits(expected)) << count;
    tile.root(static_cast<long long>(count), root, 1);
    ASSERT_EQ(bits(root[0]), bits(expected)) << count;
    ASSERT_EQ(bits(sum_of_terms(terms.data(), static_cast<long long>(count))), bits(expected))
        << count;
  }
}

TEST(Sums, SumOfNeighboursEqualsAPowerOfTwoOfPushes) {
  const std::vector<float> terms = random_terms(64);
  PairwiseSum<float, kLevels> pairwise;
  float node[1];
  for (int i = 0; i < 64; ++i) {
    node[0] = terms[static_cast<std::size_t>(i)];
    pairwise.push(i, node);
  }
  EXPECT_EQ(bits(node[0]), bits(sum_of_neighbours<64>(terms.data())));
  EXPECT_EQ(bits(node[0]), bits(sum_tree(std::span(terms))));
}

TEST(Sums, TreesOfATileAreIndependent) {
  constexpr std::size_t kWidth = 3;
  constexpr std::size_t kCount = 37;
  const std::vector<float> terms = random_terms(kWidth * kCount);
  PairwiseSum<float, kLevels, kWidth> together;
  PairwiseSum<float, kLevels> alone[kWidth];
  for (std::size_t i = 0; i < kCount; ++i) {
    float nodes[kWidth];
    for (std::size_t lane = 0; lane < kWidth; ++lane) {
      float node[1] = {terms[i * kWidth + lane]};
      nodes[lane] = node[0];
      alone[lane].push(static_cast<long long>(i), node);
    }
    together.push(static_cast<long long>(i), nodes);
  }
  float sums[kWidth];
  together.root(kCount, sums);
  for (std::size_t lane = 0; lane < kWidth; ++lane) {
    float sum[1];
    alone[lane].root(kCount, sum);
    EXPECT_EQ(bits(sums[lane]), bits(sum[0])) << lane;
  }
}

TEST(Sums, NoTermsGiveTheAbsentRoot) {
  const PairwiseSum<float, kLevels> none{};
  float root[1];
  none.root(0, root);
  EXPECT_EQ(bits(root[0]), bits(-0.0F));
  EXPECT_EQ(bits(sum_channel<float>({}, Broadcast::kPerColumn)), bits(0.0F));
}

TEST(SumLayout, RowsOfAColumnAreSplitByTheConfig) {
  EXPECT_EQ(sum_layout(Broadcast::kPerColumn, 512, 10, 10, 256).count(), 2);
  EXPECT_EQ(sum_layout(Broadcast::kPerColumn, 513, 10, 10, 256).count(), 3);
  EXPECT_EQ(sum_layout(Broadcast::kPerColumn, 513, 10, 10, 1024).count(), 1);
  EXPECT_EQ(sum_layout(Broadcast::kPerColumn, 0, 10, 10, 256).count(), 0);
}

TEST(SumLayout, RowsOfAChannelAreSplitBySamplesOrColumns) {
  const SumLayout narrow = sum_layout(Broadcast::kPerRow, 3000, 1, 3, 1);
  EXPECT_EQ(narrow.rows_per_partial, 256);
  EXPECT_EQ(narrow.row_groups, 4);
  EXPECT_EQ(narrow.spans, 1);
  const SumLayout wide = sum_layout(Broadcast::kPerRow, 6, 3 * kPartialColumns + 1, 2, 1);
  EXPECT_EQ(wide.rows_per_partial, 1);
  EXPECT_EQ(wide.row_groups, 3);
  EXPECT_EQ(wide.spans, 4);
  EXPECT_EQ(sum_layout(Broadcast::kPerRow, 6, 0, 2, 1).count(), 0);
  EXPECT_EQ(sum_layout(Broadcast::kPerRow, 0, 5, 2, 1).count(), 0);
}

TEST(SumLayout, WorkspaceFitsEveryConfigAndIsAtMostAPercentOfTheMatrices) {
  const auto check = [](Broadcast broadcast, std::int64_t rows, std::int64_t cols,
                        std::int64_t channels) {
    // Matrices of bfloat16 with sums in float32, and of float64.
    for (const auto& [element_bytes, sum_bytes] : {std::pair{2, 4}, {8, 8}}) {
      const std::int64_t bytes = sum_workspace_bytes(broadcast, rows, cols, channels, sum_bytes);
      EXPECT_LE(bytes * 100, 2 * rows * cols * element_bytes) << rows << " x " << cols;
      for (const std::int64_t height : {256, 512, 2048}) {
        const std::int64_t count = sum_layout(broadcast, rows, cols, channels, height).count();
        if (count > 1) EXPECT_LE(count * channels * sum_bytes, bytes) << rows << " x " << cols;
      }
    }
  };
  for (const std::int64_t rows :
       {1, 8, 255, 256, 257, 258, 300, 511, 512, 513, 1000, 4096, 4133, 65537, 100000, 1 << 20}) {
    for (const std::int64_t cols : {1, 2, 3, 49, 63, 128, 129, 255, 256, 257, 4096, 4097, 70000}) {
      check(Broadcast::kPerColumn, rows, cols, cols);
      check(Broadcast::kPerRow, rows, cols, 1);
    }
  }
  for (const std::int64_t samples : {1, 2, 3, 5, 9, 17, 32, 129, 257, 1025}) {
    for (const std::int64_t side : {1, 2, 3, 7, 11, 12, 16, 17, 64, 65, 91}) {
      for (const std::int64_t channels : {1, 3, 512}) {
        check(Broadcast::kPerRow, samples * channels, side * side, channels);
      }
    }
  }
}

TEST(LaunchShape, SecondStageRunsOnlyForSeveralPartialSumsOrNone) {
  Variant variant{.operation = &operation("backward"), .types = {}};
  KernelArguments arguments{};
  arguments.sizes[kernels::kCols] = arguments.sizes[kernels::kChannels] = 70;
  const auto shape = [&](std::int64_t rows) {
    arguments.sizes[kernels::kRows] = rows;
    return launch_shape(variant, as_config({.block_size = 64, .rows_per_program = 256}), arguments,
                        132);
  };
  EXPECT_EQ(shape(256).later.front().programs(), 0);
  EXPECT_EQ(shape(256).run.programs(), 2);
  EXPECT_EQ(shape(257).later.front().programs(), divide_up(70, kChannelsPerFinish));
  EXPECT_EQ(shape(257).later.front().threads, kChannelsPerFinish * kFinishLanes);
  EXPECT_EQ(shape(257).run.programs(), 4);
  EXPECT_EQ(shape(0).run.programs(), 0);
  EXPECT_EQ(shape(0).later.front().programs(), divide_up(70, kChannelsPerFinish))
      << "it writes zeros";
  variant.types[1] = variant.types[5] = ElementType::kAbsent;
  EXPECT_EQ(shape(257).later.front().programs(), 0);
}

TEST(LaunchShape, RowSumsHaveAProgramForSeveralPartialSums) {
  const Variant variant{
      .operation = &operation("backward"), .broadcast = Broadcast::kPerRow, .types = {}};
  KernelArguments arguments{};
  arguments.sizes[kernels::kRows] = 12;
  arguments.sizes[kernels::kCols] = kPartialColumns + 1;
  arguments.sizes[kernels::kChannels] = 4;
  const LaunchShape shape =
      launch_shape(variant, as_config({.block_size = 128, .rows_per_program = 16}), arguments, 132);
  EXPECT_EQ(shape.run.programs(), 2) << "3 samples, 2 spans and 4 channels make 24 partial sums";
  EXPECT_EQ(shape.later.front().programs(), 1);
}

}  // namespace
}  // namespace dorajit::kernels
