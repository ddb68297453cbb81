// Measures how long a launch of dorajit::Kernel takes the host; prints one JSON document of
// microseconds. Needs a GPU and NVRTC.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dorajit/own_kernel.hpp>
#include <vector>

namespace {

constexpr std::int64_t kSize = 1 << 12;
constexpr int kCalls = 20'000;
constexpr int kCallsBeforeTheGpuCatchesUp = 50;

constexpr const char* kDescription = R"json({
  "name": "swiglu", "entry": "swiglu<BLOCK>",
  "arguments": [["gate", "in", "float32[n]"], ["up", "in", "float32[n]"],
                ["out", "out", "float32[n]"], ["n", "int64"]],
  "parameters": {"BLOCK": [128, 256]}, "default": {"BLOCK": 256},
  "grid": "ceil_div(n, BLOCK)", "block": "BLOCK", "key": ["bucket(n)"]
})json";
constexpr const char* kSource = R"cuda(
template <int BLOCK>
__global__ void swiglu(const float* gate, const float* up, float* out, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i < n) out[i] = gate[i] / (1.0f + __expf(-gate[i])) * up[i];
})cuda";

// The part of the CUDA driver that the measurement needs.
class Driver {
 public:
  Driver() {
    if (library_ == nullptr) stop("libcuda.so.1 was not found");
    void* context = nullptr;
    call<unsigned>("cuInit", 0U);
    call<void**, int>("cuDevicePrimaryCtxRetain", &context, 0);
    call<void*>("cuCtxPushCurrent_v2", context);
    call<void**, unsigned>("cuStreamCreate", &stream_, 1U);
  }

  [[nodiscard]] void* stream() const { return stream_; }

  void* allocate(std::size_t bytes) {
    void* address = nullptr;
    call<void**, std::size_t>("cuMemAlloc_v2", &address, bytes);
    return address;
  }

  void synchronize() { call<void*>("cuStreamSynchronize", stream_); }

 private:
  [[noreturn]] static void stop(const char* why) {
    std::fprintf(stderr, "own_kernel_host_time: %s\n", why);
    std::exit(1);
  }

  template <class... Types>
  void call(const char* name, Types... arguments) {
    auto* const function = reinterpret_cast<int (*)(Types...)>(::dlsym(library_, name));
    if (function == nullptr || function(arguments...) != 0) stop(name);
  }

  void* library_ = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* stream_ = nullptr;
};

}  // namespace

int main() {
  Driver driver;
  const auto vector = [&] {
    return dorajit::TensorRef{driver.allocate(kSize * sizeof(float)),
                              {kSize},
                              dorajit::ElementType::kFloat32,
                              dorajit::Device::cuda()};
  };
  const dorajit::TensorRef gate = vector();
  const dorajit::TensorRef up = vector();
  const dorajit::TensorRef out = vector();

  dorajit::Engine engine;
  const dorajit::Kernel swiglu(kDescription, kSource);
  const auto call = [&] {
    swiglu(engine, driver.stream(), {gate, up, out}, {static_cast<double>(kSize)});
  };
  call();
  std::vector<double> times;
  for (int i = 0; i < kCalls; ++i) {
    if (i % kCallsBeforeTheGpuCatchesUp == 0) driver.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - begin;
    times.push_back(spent.count());
  }
  std::ranges::sort(times);
  const auto quantile = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  std::printf("{\"calls\": %d, \"least_us\": %.2f, \"median_us\": %.2f, \"p90_us\": %.2f}\n",
              kCalls, times.front(), quantile(0.5), quantile(0.9));
  return 0;
}
