// CUDA graphs: while a stream is captured nothing is compiled, tuned or loaded.
#include <array>

#include "autotune/engine_factory.h"
#include "kernel_templates/partial_sums.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/gpu/graphs.h"

namespace dorajit::tests {
namespace {

using driver::CuStream;
using launch::TensorView;

class Capture : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(graphs_.open());
    Settings settings = *Settings::from_environment();
    settings.cache_dir.clear();
    settings.tune_policy = TunePolicy::kOff;
    parts_ = autotune::make_engine(settings);
  }

  // An f32 operand with the same value in every element.
  TensorView make(std::int64_t rows, std::int64_t cols, float value) {
    buffers_.push_back(*device_->allocate(static_cast<std::size_t>(rows * cols) * 4));
    const TensorView view{.data = buffers_.back()->data(),
                          .type = kernels::ElementType::kFloat32,
                          .device = {.kind = kernels::DeviceKind::kCuda, .ordinal = 0},
                          .rows = rows,
                          .cols = cols,
                          .row_stride = cols};
    fill(view, value);
    return view;
  }

  void fill(const TensorView& view, float value) {
    const std::vector<float> values(static_cast<std::size_t>(view.rows * view.cols), value);
    ASSERT_TRUE(device_->upload(view.data, values.data(), values.size() * 4));
  }

  void expect_all(const TensorView& view, float value) {
    std::vector<float> values(static_cast<std::size_t>(view.rows * view.cols));
    ASSERT_TRUE(device_->download(values.data(), view.data, values.size() * 4));
    EXPECT_EQ(values, std::vector<float>(values.size(), value));
  }

  // The status of the call during capture, and its graph.
  Status capture(const launch::Call& call, void*& graph) {
    const driver::CudaDriver& driver = **driver::CudaDriver::get();
    driver::CuContext context = nullptr;
    EXPECT_EQ(driver.primary_context_retain(&context, 0), driver::kCudaSuccess);
    const driver::ScopedContext scope(driver, context);
    EXPECT_EQ(graphs_.begin(stream(), 0), 0);
    const Status captured = parts_.engine->run(call, stream());
    EXPECT_EQ(graphs_.end(stream(), &graph), 0) << "a refusal must leave the capture valid";
    driver.primary_context_release(0);
    return captured;
  }

  void replay(void* graph) {
    const driver::CudaDriver& driver = **driver::CudaDriver::get();
    driver::CuContext context = nullptr;
    ASSERT_EQ(driver.primary_context_retain(&context, 0), driver::kCudaSuccess);
    const driver::ScopedContext scope(driver, context);
    if (executable_ == nullptr) ASSERT_EQ(graphs_.instantiate(&executable_, graph, 0), 0);
    ASSERT_EQ(graphs_.launch(executable_, stream()), 0);
    ASSERT_TRUE(device_->synchronize(stream()));
    driver.primary_context_release(0);
  }

  CuStream stream() const { return static_cast<CuStream>(device_->own_stream()); }

  Graphs graphs_;
  autotune::EngineParts parts_;
  std::vector<std::unique_ptr<device::Buffer>> buffers_;
  void* executable_ = nullptr;
};

TEST_F(Capture, RefusesAnUnknownProblemAndReplaysAKnownOne) {
  const std::array operands = {make(16, 1024, 1), make(16, 1024, 1), make(1, 1024, 1),
                               make(16, 1024, 0)};
  const double scale = 3.0;
  const launch::Call call{
      .operation = &kernels::operation("compose"), .operands = operands, .scalars = {&scale, 1}};
  void* graph = nullptr;
  const Status refused = capture(call, graph);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, StatusCode::kCaptureUnsafe);
  EXPECT_NE(refused.error().message.find("dorajit_warmup"), std::string::npos);
  EXPECT_EQ(parts_.engine->statistics().compilations, 0);

  ASSERT_TRUE(parts_.engine->warm_up(call));
  const Status captured = capture(call, graph);
  ASSERT_TRUE(captured) << captured.error().message;
  expect_all(operands[3], 0);
  replay(graph);
  expect_all(operands[3], 3);
}

// Both stages of a sum, with the partial sums in the caller's workspace.
TEST_F(Capture, ReplaysASumThatTakesTwoLaunches) {
  constexpr std::int64_t kRows = 1000;
  constexpr std::int64_t kCols = 256;
  const std::array operands = {make(kRows, kCols, 2), make(kRows, kCols, 3), make(1, kCols, 4),
                               make(kRows, kCols, 0), make(kRows, kCols, 0), make(1, kCols, 0)};
  const std::int64_t bytes = kernels::sum_workspace_bytes(kernels::Broadcast::kPerColumn, kRows,
                                                          kCols, kCols, sizeof(float));
  ASSERT_GT(bytes, 0);
  const TensorView workspace = make(1, bytes / 4, 0);
  const double scale = 0.5;
  const launch::Call call{.operation = &kernels::operation("backward"),
                          .operands = operands,
                          .scalars = {&scale, 1},
                          .workspace = workspace.data,
                          .workspace_bytes = bytes};
  ASSERT_TRUE(parts_.engine->run(call, stream()));
  ASSERT_TRUE(device_->synchronize(stream()));
  void* graph = nullptr;
  const Status captured = capture(call, graph);
  ASSERT_TRUE(captured) << captured.error().message;
  std::size_t nodes = 0;
  ASSERT_EQ(graphs_.nodes(graph, nullptr, &nodes), 0);
  EXPECT_EQ(nodes, 2U);
  for (const float d_out : {2.0F, 5.0F}) {
    fill(operands[0], d_out);
    for (const std::size_t output : {3, 4, 5}) fill(operands[output], -1);
    fill(workspace, -1);
    replay(graph);
    expect_all(operands[3], 2 * d_out);
    expect_all(operands[4], 3 * d_out);
    expect_all(operands[5], 3 * d_out * kRows);
  }
}

}  // namespace
}  // namespace dorajit::tests
