#include "runtime/engine.h"

#include <gtest/gtest.h>

#include <format>
#include <functional>
#include <thread>
#include <utility>

#include "runtime/device/cpu/cpu_device.h"
#include "runtime/driver/cuda_driver.h"
#include "tests/fakes/default_configs.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit {
namespace {

using launch::TensorView;
using enum kernels::ElementType;

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kCols = 40;
constexpr launch::DeviceId kCpu{};

// Gives the configured answer, and calls its listener when the answer changes.
class ConfigurableSource final : public launch::ConfigSource {
 public:
  using Change = std::function<void(launch::ConfigAnswer&)>;  // modifies the default answer
  explicit ConfigurableSource(Change change) : change_(std::move(change)) {}

  launch::ConfigAnswer find(const launch::Problem& problem, device::Device& device,
                            launch::KernelCache& kernels) override {
    problem_ = problem;
    device_ = &device;
    launch::ConfigAnswer answer = launch::DefaultConfigs().find(problem, device, kernels);
    change_(answer);
    return answer;
  }
  void set_listener(Listener listener) override { listener_ = std::move(listener); }

  void answer_with(Change change) {
    change_ = std::move(change);
    listener_(problem_, *device_);
  }

 private:
  Change change_;
  launch::Problem problem_;
  device::Device* device_ = nullptr;
  Listener listener_;
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

  // The answer that a call currently uses.
  launch::ConfigAnswer find_ready(Engine& engine) {
    const auto views = operands();
    const double scale = 0.5;
    const auto ready = engine.find_ready(
        {.operation = &kernels::operation("compose"), .operands = views, .scalars = {&scale, 1}});
    EXPECT_TRUE(ready && ready->plan != nullptr);
    return ready && ready->plan != nullptr ? ready->plan->answer : launch::ConfigAnswer{};
  }

  static int processors() { return device::CpuDevice().info().traits.processors; }

  // lora 2, base 3, gain 4, scale 0.5: 3 * 3 + 4 * 1
  static constexpr float kExpected = 13.0F;

  std::shared_ptr<tests::MemoryArtifactStore> artifacts_ =
      std::make_shared<tests::MemoryArtifactStore>();
  std::array<std::vector<float>, 4> memory_;
};

TEST_F(EngineTest, CallComputesAndCountsItsLaunch) {
  auto engine = make_engine();
  const auto views = operands();
  ASSERT_TRUE(run(*engine, views));
  ASSERT_TRUE(run(*engine, views));
  EXPECT_EQ(memory_[3], std::vector<float>(kRows * kCols, kExpected));
  EXPECT_EQ(engine->statistics().launches, 2);
  EXPECT_EQ(engine->statistics().compilations, 1);
}

TEST_F(EngineTest, EmptyCallLaunchesNothing) {
  auto engine = make_engine();
  auto views = operands();
  for (auto* view : {&views[0], &views[1], &views[3]}) view->rows = 0;
  ASSERT_TRUE(run(*engine, views));
  EXPECT_EQ(engine->statistics().launches, 0);
  EXPECT_EQ(engine->statistics().compilations, 0);
}

TEST_F(EngineTest, InvalidConfigIsReplacedByTheDefault) {
  const struct {
    char tunable;
    int value;
  } wrongs[] = {{kernels::kWarps, processors() + 1},    // workers
                {kernels::kWarps, 1 << 20},             //
                {kernels::kWarps, 0},                   //
                {kernels::kWarps, -1},                  //
                {kernels::kVectorWidth, 3},             // not a power of two
                {kernels::kVectorWidth, 16},            // wider than the alignment of the data
                {kernels::kColumnsOfProgram, 0},        //
                {kernels::kColumnsOfProgram, 1 << 30},  //
                {kernels::kRowsOfProgram, -1}};
  for (const auto& [tunable, value] : wrongs) {
    SCOPED_TRACE(std::format("{}{}", tunable, value));
    auto engine = make_engine(
        std::make_unique<ConfigurableSource>([tunable, value](launch::ConfigAnswer& answer) {
          answer.config.set(tunable, value);
          answer.origin = launch::ConfigOrigin::kUserDatabase;
        }));
    const auto status = run(*engine, operands());
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(memory_[3], std::vector<float>(kRows * kCols, kExpected));
    const auto plan = find_ready(*engine);
    EXPECT_EQ(plan.origin, launch::ConfigOrigin::kDefault);
    EXPECT_NE(plan.config[tunable], value);
  }
}

TEST_F(EngineTest, ConfigWithoutTunablesIsReplacedByTheDefault) {
  auto engine = make_engine(std::make_unique<ConfigurableSource>(
      [](launch::ConfigAnswer& answer) { answer.config = {}; }));
  ASSERT_TRUE(run(*engine, operands()));
  EXPECT_EQ(memory_[3], std::vector<float>(kRows * kCols, kExpected));
}

TEST_F(EngineTest, OnlyChangedPlansAreCountedAsRenewed) {
  const auto unchanged = [](launch::ConfigAnswer&) {};
  auto source = std::make_unique<ConfigurableSource>(unchanged);
  ConfigurableSource& configs = *source;
  auto engine = make_engine(std::move(source));
  ASSERT_TRUE(run(*engine, operands()));
  const auto renewed = [&] { return engine->statistics().renewed_plans.load(); };
  configs.answer_with(unchanged);
  EXPECT_EQ(renewed(), 0);
  const auto found = [](launch::ConfigAnswer& answer) {
    answer.origin = launch::ConfigOrigin::kUserDatabase;
  };
  configs.answer_with(found);
  EXPECT_EQ(renewed(), 1) << "another source";
  configs.answer_with(found);
  EXPECT_EQ(renewed(), 1);
  configs.answer_with([&](launch::ConfigAnswer& answer) {
    found(answer);
    answer.config.set(kernels::kColumnsOfProgram, answer.config[kernels::kColumnsOfProgram] / 2);
  });
  EXPECT_EQ(renewed(), 2) << "another config";
  ASSERT_NE(engine->plan(0), nullptr);
  EXPECT_EQ(engine->plan(1), nullptr);
  EXPECT_EQ(engine->plan(0)->renewals, 2);
  EXPECT_EQ(engine->plan(0)->answer.origin, launch::ConfigOrigin::kUserDatabase);
  EXPECT_EQ(find_ready(*engine).origin, launch::ConfigOrigin::kUserDatabase);
}

TEST_F(EngineTest, CudaCallWithoutADriverReportsTheMissingDriver) {
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
