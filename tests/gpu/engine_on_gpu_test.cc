// The engine on an NVIDIA GPU, from cold cache to launch.
#include <chrono>
#include <thread>

#include "autotune/engine_factory.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/gpu/gpu_fixture.h"

namespace dorajit::tests {
namespace {

using kernels::ElementType;
using launch::DeviceId;
using launch::TensorView;

constexpr DeviceId kGpu{.kind = kernels::DeviceKind::kCuda, .ordinal = 0};
constexpr std::int64_t kRows = 64;
constexpr std::int64_t kCols = 4096;

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

class EngineOnGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    for (auto& buffer : buffers_) {
      auto made = device_->allocate(kRows * kCols * 4);
      ASSERT_TRUE(made);
      buffer = *std::move(made);
      ASSERT_TRUE(device_->fill(buffer->data(), 0, buffer->size()));
    }
  }

  autotune::EngineParts make_parts(TunePolicy policy = TunePolicy::kFirstUse) {
    Settings settings = *Settings::from_environment();
    settings.cache_dir = folder_.path();
    settings.tune_policy = policy;
    return autotune::make_engine(settings);
  }

  TensorView view(std::size_t index, std::int64_t rows = kRows) const {
    return {.data = buffers_[index]->data(),
            .type = ElementType::kFloat32,
            .device = kGpu,
            .rows = rows,
            .cols = kCols,
            .row_stride = kCols};
  }

  Status run(Engine& engine, const std::array<TensorView, 4>& operands,
             device::Stream stream = nullptr) {
    const double scale = 0.5;
    return engine.run(
        {.operation = &kernels::operation("compose"), .operands = operands, .scalars = {&scale, 1}},
        stream);
  }

  std::array<TensorView, 4> operands() const { return {view(0), view(1), view(2, 1), view(3)}; }

  cache::TemporaryDirectory folder_;
  std::array<std::unique_ptr<device::Buffer>, 4> buffers_;
};

TEST_F(EngineOnGpu, FirstUseTunesAndASecondEngineNeitherTunesNorCompiles) {
  auto start = std::chrono::steady_clock::now();
  {
    auto first = make_parts();
    const auto status = run(*first.engine, operands());
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_TRUE(device_->synchronize(nullptr));
    EXPECT_EQ(first.engine->statistics().tuned_problems, 1);
    EXPECT_GT(first.engine->statistics().compilations, 1);
    std::printf("cold first launch (compile, verify, tune): %.1f ms\n", milliseconds_since(start));
  }
  start = std::chrono::steady_clock::now();
  auto second = make_parts();
  ASSERT_TRUE(run(*second.engine, operands()));
  ASSERT_TRUE(device_->synchronize(nullptr));
  std::printf("warm first launch (new engine, same process): %.2f ms\n", milliseconds_since(start));
  EXPECT_EQ(second.engine->statistics().compilations, 0);
  EXPECT_EQ(second.engine->statistics().trials, 0);
  EXPECT_EQ(second.engine->statistics().artifact_hits, 1);
}

TEST_F(EngineOnGpu, RefusesMemoryThatTheGpuCannotAccess) {
  auto parts = make_parts(TunePolicy::kOff);
  std::vector<float> host(kRows * kCols);
  auto tensors = operands();
  tensors[1].data = host.data();
  const auto status = run(*parts.engine, tensors);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, StatusCode::kWrongDevice);
  EXPECT_NE(status.error().message.find("`base`"), std::string::npos) << status.error().message;
}

TEST_F(EngineOnGpu, RefusesAMissingDevice) {
  auto parts = make_parts(TunePolicy::kOff);
  auto tensors = operands();
  for (auto& tensor : tensors) tensor.device.ordinal = 63;
  const auto status = run(*parts.engine, tensors);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, StatusCode::kInvalidArgument);
}

TEST_F(EngineOnGpu, WorksOnThreadsWithoutAContext) {
  auto parts = make_parts(TunePolicy::kOff);
  std::vector<std::thread> threads;
  std::atomic<int> succeeded{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 50; ++call) succeeded += run(*parts.engine, operands()) ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(succeeded, 400);
  EXPECT_TRUE(device_->synchronize(nullptr));
  EXPECT_EQ(parts.engine->statistics().compilations, 1);
}

TEST_F(EngineOnGpu, ReportsTheCpuTimeOfALaunch) {
  auto parts = make_parts(TunePolicy::kOff);
  ASSERT_TRUE(run(*parts.engine, operands()));
  constexpr int kCalls = 500;
  ASSERT_TRUE(device_->synchronize(nullptr));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) ASSERT_TRUE(run(*parts.engine, operands()));
  std::printf("CPU time of one call: %.2f us\n", milliseconds_since(start) * 1e3 / kCalls);
  EXPECT_TRUE(device_->synchronize(nullptr));
}

TEST_F(EngineOnGpu, ConcurrentThreadsTuneAProblemOnce) {
  auto parts = make_parts();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(run(*parts.engine, operands())); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(parts.engine->statistics().tuned_problems, 1);
}

}  // namespace
}  // namespace dorajit::tests
