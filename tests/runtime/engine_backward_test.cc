// Calls with a sum, with absent operands and with a workspace, through the engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernel_templates/partial_sums.h"
#include "runtime/engine.h"
#include "tests/fakes/default_configs.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit {
namespace {

using kernels::Broadcast;
using launch::TensorView;
using enum kernels::ElementType;

constexpr std::size_t kOperands = 6;
enum Operand : std::size_t { kDOut, kInner, kGain, kDLora, kDBase, kDGain };

constexpr float kUntouched = -77;

class EngineBackward : public testing::Test {
 protected:
  EngineBackward() { lay_out(Broadcast::kPerColumn, 600, 8, 8); }

  // d_out 2, inner 3, gain 4, scale 0.5: d_lora 4, d_base 6, and 6 for every term of the sum.
  void lay_out(Broadcast broadcast, std::int64_t rows, std::int64_t cols, std::int64_t channels) {
    broadcast_ = broadcast;
    for (std::size_t i = 0; i < kOperands; ++i) {
      const bool is_matrix = i != kGain && i != kDGain;
      const std::int64_t elements = is_matrix ? rows * cols : channels;
      memory_[i].assign(static_cast<std::size_t>(elements),
                        i < kDLora ? static_cast<float>(i + 2) : kUntouched);
      views_[i] = {.data = memory_[i].data(),
                   .type = kFloat32,
                   .device = {},
                   .rows = is_matrix ? rows : 1,
                   .cols = is_matrix ? cols : channels,
                   .row_stride = cols};
    }
    const std::int64_t bytes =
        kernels::sum_workspace_bytes(broadcast, rows, cols, channels, sizeof(float));
    workspace_.assign(static_cast<std::size_t>(bytes) / sizeof(float), kUntouched);
  }

  void leave_out(std::initializer_list<Operand> operands) {
    for (const Operand operand : operands) views_[operand].type = kAbsent;
  }

  Status run() {
    const double scale = 0.5;
    return engine_.run({.operation = &kernels::operation("backward"),
                        .broadcast = broadcast_,
                        .operands = views_,
                        .scalars = {&scale, 1},
                        .workspace = workspace_.empty() ? nullptr : workspace_.data(),
                        .workspace_bytes = static_cast<std::int64_t>(workspace_.size() * 4)},
                       nullptr);
  }

  void expect_all(Operand operand, float value) const {
    EXPECT_EQ(memory_[operand], std::vector<float>(memory_[operand].size(), value));
  }

  Engine engine_{Settings{}, std::make_unique<Statistics>(),
                 std::make_shared<tests::MemoryArtifactStore>(),
                 std::make_unique<launch::DefaultConfigs>()};
  Broadcast broadcast_ = Broadcast::kPerColumn;
  std::array<std::vector<float>, kOperands> memory_;
  std::array<TensorView, kOperands> views_;
  std::vector<float> workspace_;
};

TEST_F(EngineBackward, ComputesAllThreeGradientsPerColumnAndPerRow) {
  ASSERT_TRUE(run());
  expect_all(kDLora, 4);
  expect_all(kDBase, 6);
  expect_all(kDGain, 6 * 600);
  lay_out(Broadcast::kPerRow, 600, 8, 3);
  ASSERT_TRUE(run());
  expect_all(kDLora, 4);
  expect_all(kDBase, 6);
  expect_all(kDGain, 6 * 200 * 8);
  EXPECT_EQ(engine_.statistics().compilations, 2);
}

TEST_F(EngineBackward, AbsentOutputsAreNotWritten) {
  leave_out({kDBase, kDGain, kInner});
  ASSERT_TRUE(run());
  expect_all(kDLora, 4);
  expect_all(kDBase, kUntouched);
  expect_all(kDGain, kUntouched);
  lay_out(Broadcast::kPerColumn, 600, 8, 8);
  leave_out({kDLora, kDBase});
  ASSERT_TRUE(run());
  expect_all(kDLora, kUntouched);
  expect_all(kDBase, kUntouched);
  expect_all(kDGain, 6 * 600);
}

TEST_F(EngineBackward, ZeroRowsGiveASumOfZeros) {
  for (const Broadcast broadcast : {Broadcast::kPerColumn, Broadcast::kPerRow}) {
    lay_out(broadcast, 0, 8, 8);
    EXPECT_TRUE(workspace_.empty());
    ASSERT_TRUE(run());
    expect_all(kDGain, 0);
    EXPECT_FALSE(std::signbit(memory_[kDGain].front()));
  }
}

TEST_F(EngineBackward, ZeroColumnsGiveASumOfZerosPerRow) {
  lay_out(Broadcast::kPerRow, 12, 0, 4);
  EXPECT_TRUE(workspace_.empty());
  ASSERT_TRUE(run());
  expect_all(kDGain, 0);
}

TEST_F(EngineBackward, ZeroColumnsWriteNothingPerColumn) {
  lay_out(Broadcast::kPerColumn, 12, 0, 0);
  ASSERT_TRUE(run());
  EXPECT_EQ(engine_.statistics().launches, 0);
}

TEST_F(EngineBackward, EmptyCallWithoutASumLaunchesNothing) {
  lay_out(Broadcast::kPerColumn, 0, 8, 8);
  leave_out({kInner, kDGain});
  ASSERT_TRUE(run());
  EXPECT_EQ(engine_.statistics().launches, 0);
  EXPECT_EQ(engine_.statistics().compilations, 0);
}

TEST_F(EngineBackward, SinglePartialSumNeedsNoWorkspace) {
  lay_out(Broadcast::kPerColumn, 256, 8, 8);
  EXPECT_TRUE(workspace_.empty());
  ASSERT_TRUE(run());
  expect_all(kDGain, 6 * 256);
}

TEST_F(EngineBackward, RefusedCallWritesNothing) {
  const auto refuse = [&](auto spoil) {
    lay_out(Broadcast::kPerColumn, 600, 8, 8);
    spoil();
    ASSERT_FALSE(run());
    for (const Operand output : {kDLora, kDBase, kDGain}) expect_all(output, kUntouched);
    EXPECT_EQ(workspace_, std::vector<float>(workspace_.size(), kUntouched));
  };
  refuse([&] { workspace_.pop_back(); });
  refuse([&] { leave_out({kInner}); });
  refuse([&] { leave_out({kDLora, kDBase, kDGain}); });
  refuse([&] { views_[kDGain].cols = 7; });
  refuse([&] { views_[kDGain].data = memory_[kGain].data(); });
  refuse([&] { views_[kDBase].data = memory_[kDLora].data(); });
  refuse([&] {
    broadcast_ = Broadcast::kPerRow;
    views_[kGain].cols = views_[kDGain].cols = 7;
  });
  EXPECT_EQ(engine_.statistics().launches, 0);
}

}  // namespace
}  // namespace dorajit
