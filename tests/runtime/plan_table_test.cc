#include "runtime/launch/plan_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kernel_templates/config.h"
#include "kernel_templates/sizes.h"
#include "tests/fakes/fake_device.h"

namespace dorajit::launch {
namespace {

LaunchPlan plan_for(std::int64_t cols, int block_size = 1) {
  Problem problem{.key = {0, cols}};
  const kernels::Config config{{kernels::kColumnsOfProgram, block_size}};
  return {.key = make_plan_key(problem, {}),
          .problem = problem,
          .device = nullptr,
          .answer = {.config = config},
          .choices = {},
          .problem_text = {}};
}

TEST(PlanTable, FindsInsertedPlansAfterGrowing) {
  PlanTable table;
  for (std::int64_t cols = 1; cols <= 2000; ++cols) table.insert(plan_for(cols));
  for (std::int64_t cols = 1; cols <= 2000; ++cols) {
    const LaunchPlan* plan = table.find(plan_for(cols).key);
    ASSERT_NE(plan, nullptr);
    EXPECT_EQ(plan->problem.key[kernels::kCols], cols);
  }
  EXPECT_EQ(table.find(plan_for(2001).key), nullptr);
}

TEST(PlanTable, ReplacedPlanStaysValid) {
  PlanTable table;
  const LaunchPlan* old = table.insert(plan_for(7, 128));
  table.insert(plan_for(7, 256));
  EXPECT_EQ(old->answer.config[kernels::kColumnsOfProgram], 128);
  EXPECT_EQ(table.find(old->key)->answer.config[kernels::kColumnsOfProgram], 256);
}

TEST(PlanTable, NumbersKeysInTheOrderOfTheirFirstPlan) {
  PlanTable table;
  EXPECT_EQ(table.at(0), nullptr);
  for (const std::int64_t cols : {7, 5, 6}) table.insert(plan_for(cols, 128));
  table.insert(plan_for(5, 256));
  EXPECT_EQ(table.at(0)->problem.key[kernels::kCols], 7);
  EXPECT_EQ(table.at(1)->answer.config[kernels::kColumnsOfProgram], 256);
  EXPECT_EQ(table.at(2)->problem.key[kernels::kCols], 6);
  EXPECT_EQ(table.at(3), nullptr);
}

// A plan whose only stage has space for 16 of the rank gives wrong results for other ranks.
TEST(PlanTable, SubstituteHasAConfigThatIsValidForTheProblem) {
  using enum kernels::ElementType;
  tests::FakeDevice device(4);
  device.pose_as_gpu(9, 0);
  const kernels::Variant variant{
      .operation = &kernels::operation("compose_low_rank"),
      .types = {kBfloat16, kBfloat16, kBfloat16, kFloat32, kAbsent, kBfloat16, kAbsent}};
  const auto problem = [&](std::int64_t rank) {
    return make_problem(variant, kernels::DeviceKind::kCuda, {64, 256, rank});
  };
  PlanTable table;
  LaunchPlan plan = plan_for(0);
  plan.problem = problem(16);
  plan.key = make_plan_key(plan.problem, {});
  plan.device = &device;
  const auto config = kernels::parse_config("r32-b128-w4-k16-s1-p1-t1-v8");
  ASSERT_TRUE(config);
  plan.answer.config = *config;
  table.insert(std::move(plan));
  EXPECT_NE(table.find_substitute(problem(8), device), nullptr);
  EXPECT_EQ(table.find_substitute(problem(64), device), nullptr);
  EXPECT_EQ(table.find_substitute(problem(128), device), nullptr);
}

TEST(PlanTable, KeysDifferInEveryPart) {
  using enum kernels::ElementType;
  const Problem problem{
      .variant = {.operation = &kernels::operation("compose"), .types = {kFloat32}},
      .vector_width = 4,
      .key = {3, 64}};
  std::vector<Problem> others(7, problem);
  others[0].variant.operation = &kernels::operation("add");
  others[1].variant.types[3] = kFloat16;
  others[2].vector_width = 8;
  others[3].key[kernels::kCols] = 65;
  others[4].key[kernels::kRows] = 4;
  others[5].variant.broadcast = kernels::Broadcast::kPerRow;
  others[6].variant.types[3] = kAbsent;
  const PlanKey key = make_plan_key(problem, {});
  for (const Problem& other : others) EXPECT_NE(make_plan_key(other, {}), key) << to_text(other);
  EXPECT_NE(make_plan_key(problem, {.kind = kernels::DeviceKind::kCuda, .ordinal = 0}), key);
  EXPECT_NE(make_plan_key(problem, {.kind = kernels::DeviceKind::kCuda, .ordinal = 1}),
            make_plan_key(problem, {.kind = kernels::DeviceKind::kCuda, .ordinal = 0}));
}

TEST(PlanTableConcurrency, ReadersSeeCompletePlansWhileWritersInsertAndReplace) {
  PlanTable table;
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  std::atomic<long> found{0};
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        for (std::int64_t cols = 1; cols <= 600; ++cols) {
          const LaunchPlan* plan = table.find(plan_for(cols).key);
          if (plan == nullptr) continue;
          ASSERT_EQ(plan->problem.key[kernels::kCols], cols);
          ++found;
        }
      }
    });
  }
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&, i] {
      for (std::int64_t cols = 1; cols <= 600; ++cols) table.insert(plan_for(cols, i + 1));
    });
  }
  for (auto& writer : writers) writer.join();
  while (found == 0) std::this_thread::yield();
  stop = true;
  for (auto& reader : readers) reader.join();
  for (std::int64_t cols = 1; cols <= 600; ++cols) {
    EXPECT_NE(table.find(plan_for(cols).key), nullptr);
  }
}

}  // namespace
}  // namespace dorajit::launch
