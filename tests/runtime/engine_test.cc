#include "runtime/engine.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/driver/cuda_driver.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit {
namespace {

using launch::TensorView;
using enum kernels::ElementType;

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kCols = 40;
constexpr launch::DeviceId kCpu{};

// A source whose answer no kernel can be compiled for.
class ImpossibleConfigs final : public launch::ConfigSource {
 public:
  launch::ConfigAnswer find(const launch::Problem&, device::Device&,
                            launch::KernelCache&) override {
    kernels::Config config;
    config.set(kernels::kVectorWidth, 3);
    return {.config = config, .rung = launch::Rung::kUserDatabase};
  }
};

class EngineTest : public testing::Test {
 protected:
  std::unique_ptr<Engine> make_engine(
      std::unique_ptr<launch::ConfigSource> configs = std::make_unique<launch::DefaultConfigs>()) {
    return std::make_unique<Engine>(Settings{}, std::make_unique<Statistics>(), artifacts_,
                                    std::move(configs));
  }

  std::array<TensorView, 4> operands() {
    std::array<TensorView, 4> views;
    for (std::size_t i = 0; i < 4; ++i) {
      memory_[i].assign(kRows * kCols, static_cast<float>(i + 2));
      views[i] = {.data = memory_[i].data(),
                  .type = kFloat32,
                  .device = kCpu,
                  .rows = i == 2 ? 1 : kRows,
                  .cols = kCols,
                  .row_stride = kCols};
    }
    return views;
  }

  Status run(Engine& engine, const std::array<TensorView, 4>& views) {
    const double scale = 0.5;
    return engine.run(
        {.operation = &kernels::operation("compose"), .operands = views, .scalars = {&scale, 1}},
        nullptr);
  }

  // lora 2, base 3, gain 4, scale 0.5: 3 * 3 + 4 * 1
  static constexpr float kExpected = 13.0F;

  std::shared_ptr<tests::MemoryArtifactStore> artifacts_ =
      std::make_shared<tests::MemoryArtifactStore>();
  std::array<std::vector<float>, 4> memory_;
};

TEST_F(EngineTest, ComputesAndCountsLaunches) {
  auto engine = make_engine();
  const auto views = operands();
  ASSERT_TRUE(run(*engine, views));
  ASSERT_TRUE(run(*engine, views));
  EXPECT_EQ(memory_[3], std::vector<float>(kRows * kCols, kExpected));
  EXPECT_EQ(engine->statistics().launches, 2);
  EXPECT_EQ(engine->statistics().compilations, 1);
}

TEST_F(EngineTest, AnEmptyCallLaunchesNothing) {
  auto engine = make_engine();
  auto views = operands();
  for (auto* view : {&views[0], &views[1], &views[3]}) view->rows = 0;
  ASSERT_TRUE(run(*engine, views));
  EXPECT_EQ(engine->statistics().launches, 0);
  EXPECT_EQ(engine->statistics().compilations, 0);
}

TEST_F(EngineTest, ARefusedCallWritesNothing) {
  auto engine = make_engine();
  auto views = operands();
  views[1].cols = kCols - 1;
  ASSERT_FALSE(run(*engine, views));
  EXPECT_EQ(memory_[3], std::vector<float>(kRows * kCols, 5.0F));
}

TEST_F(EngineTest, FallsBackToTheDefaultConfigWhenTheAnswerCannotBeCompiled) {
  auto engine = make_engine(std::make_unique<ImpossibleConfigs>());
  const auto status = run(*engine, operands());
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(memory_[3], std::vector<float>(kRows * kCols, kExpected));
}

TEST_F(EngineTest, CallsOnCudaTensorsSayWhatIsMissingWithoutADriver) {
  if (driver::CudaDriver::get()) GTEST_SKIP() << "there is a driver here";
  auto engine = make_engine();
  auto views = operands();
  for (auto& view : views) view.device.kind = kernels::DeviceKind::kCuda;
  const auto status = run(*engine, views);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, StatusCode::kNoDriver);
  EXPECT_NE(status.error().message.find("install the NVIDIA driver"), std::string::npos);
  EXPECT_EQ(engine->cuda_device_count(), 0);
}

TEST_F(EngineTest, ConcurrentFirstCallsOfManyThreadsMakeOnePlan) {
  auto engine = make_engine();
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> outputs(8, std::vector<float>(kRows * kCols));
  const auto views = operands();
  for (auto& output : outputs) {
    threads.emplace_back([&] {
      auto own = views;
      own[3].data = output.data();
      for (int call = 0; call < 50; ++call) ASSERT_TRUE(run(*engine, own));
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& output : outputs) {
    EXPECT_EQ(output, std::vector<float>(kRows * kCols, kExpected));
  }
  EXPECT_EQ(engine->statistics().compilations, 1);
  EXPECT_EQ(engine->statistics().launches, 400);
}

}  // namespace
}  // namespace dorajit
