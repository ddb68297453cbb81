// CUDA graphs: while a stream is captured nothing is compiled, tuned or loaded.
#include <stdlib.h>

#include <filesystem>

#include "bindings/composition.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/driver/cuda_driver.h"
#include "tests/gpu/gpu_fixture.h"

namespace dorajit::tests {
namespace {

using driver::CuResult;
using driver::CuStream;

// The graph calls of the driver, which the library itself has no use for.
class Graphs {
 public:
  bool open() {
    auto library = DynamicLibrary::open("libcuda.so.1");
    if (!library) return false;
    begin =
        reinterpret_cast<CuResult (*)(CuStream, int)>(library->symbol("cuStreamBeginCapture_v2"));
    end = reinterpret_cast<CuResult (*)(CuStream, void**)>(library->symbol("cuStreamEndCapture"));
    instantiate = reinterpret_cast<CuResult (*)(void**, void*, unsigned long long)>(
        library->symbol("cuGraphInstantiateWithFlags"));
    launch = reinterpret_cast<CuResult (*)(void*, CuStream)>(library->symbol("cuGraphLaunch"));
    library->keep_forever();
    return begin != nullptr && end != nullptr && instantiate != nullptr && launch != nullptr;
  }

  CuResult (*begin)(CuStream, int) = nullptr;
  CuResult (*end)(CuStream, void**) = nullptr;
  CuResult (*instantiate)(void**, void*, unsigned long long) = nullptr;
  CuResult (*launch)(void*, CuStream) = nullptr;
};

class Capture : public GpuTest {};

TEST_F(Capture, RefusesAnUnknownProblemAndReplaysAKnownOne) {
  Graphs graphs;
  ASSERT_TRUE(graphs.open());
  const driver::CudaDriver& driver = **driver::CudaDriver::get();
  driver::CuContext context = nullptr;
  ASSERT_EQ(driver.primary_context_retain(&context, 0), driver::kCudaSuccess);
  const driver::ScopedContext scope(driver, context);
  Settings settings = *Settings::from_environment();
  settings.cache_dir.clear();
  settings.tune_policy = TunePolicy::kOff;
  auto composition = bindings::compose_engine(settings);

  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kCols = 1024;
  std::array<std::unique_ptr<device::Buffer>, 4> buffers;
  std::array<launch::TensorView, 4> operands;
  const std::vector<float> ones(kRows * kCols, 1.0F);
  for (std::size_t i = 0; i < 4; ++i) {
    buffers[i] = *device_->allocate(kRows * kCols * 4);
    ASSERT_TRUE(device_->upload(buffers[i]->data(), ones.data(), ones.size() * 4));
    operands[i] = {.data = buffers[i]->data(),
                   .type = kernels::ElementType::kFloat32,
                   .device = {.kind = kernels::DeviceKind::kCuda, .ordinal = 0},
                   .rows = i == 2 ? 1 : kRows,
                   .cols = kCols,
                   .row_stride = kCols};
  }
  const double scale = 3.0;
  const launch::Call call{
      .op = kernels::Op::kCompose, .operands = operands, .scalars = {&scale, 1}};
  auto* stream = static_cast<CuStream>(device_->own_stream());
  void* graph = nullptr;

  ASSERT_EQ(graphs.begin(stream, 0), 0);
  const auto refused = composition.engine->run(call, stream);
  ASSERT_EQ(graphs.end(stream, &graph), 0) << "the refusal must leave the capture valid";
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, StatusCode::kCaptureUnsafe);
  EXPECT_NE(refused.error().message.find("before the capture"), std::string::npos);
  EXPECT_EQ(composition.engine->statistics().compilations, 0);

  ASSERT_TRUE(composition.engine->run(call, stream));
  ASSERT_TRUE(device_->synchronize(stream));
  ASSERT_TRUE(device_->fill(buffers[3]->data(), 0, buffers[3]->size()));

  ASSERT_EQ(graphs.begin(stream, 0), 0);
  const auto captured = composition.engine->run(call, stream);
  ASSERT_EQ(graphs.end(stream, &graph), 0);
  ASSERT_TRUE(captured) << captured.error().message;
  void* executable = nullptr;
  ASSERT_EQ(graphs.instantiate(&executable, graph, 0), 0);
  ASSERT_EQ(graphs.launch(executable, stream), 0);
  ASSERT_TRUE(device_->synchronize(stream));
  std::vector<float> result(ones.size());
  ASSERT_TRUE(device_->download(result.data(), buffers[3]->data(), result.size() * 4));
  EXPECT_EQ(result, std::vector<float>(ones.size(), 3.0F));
}

}  // namespace
}  // namespace dorajit::tests
