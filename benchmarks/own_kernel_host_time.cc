// Measures how long a launch of dorajit::Kernel takes the host, with and without the check of each
// pointer, beside the driver's launch of an empty kernel with the same arguments; prints one JSON
// document of microseconds. Needs a GPU and NVRTC.
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

constexpr const char* kEmptyKernel = R"ptx(
.version 7.8
.target sm_80
.address_size 64
.visible .entry empty(.param .u64 gate, .param .u64 up, .param .u64 out, .param .u64 n) { ret; }
)ptx";

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
    void* module = nullptr;
    call<void**, const void*>("cuModuleLoadData", &module, kEmptyKernel);
    call<void**, void*, const char*>("cuModuleGetFunction", &empty_, module, "empty");
    launch_ = reinterpret_cast<Launch*>(::dlsym(library_, "cuLaunchKernel"));
  }

  void launch_empty(std::int64_t size) {
    void* arguments[] = {&stream_, &stream_, &stream_, &size};
    if (launch_(empty_, 16, 1, 1, 256, 1, 1, 0, stream_, arguments, nullptr) != 0) {
      stop("cuLaunchKernel");
    }
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

  using Launch = int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void*, void**, void**);

  void* library_ = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* stream_ = nullptr;
  void* empty_ = nullptr;
  Launch* launch_ = nullptr;
};

class Times {
 public:
  template <class Call>
  void add(const Call& call) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - begin;
    times_.push_back(spent.count());
  }

  void print(const char* name) {
    std::ranges::sort(times_);
    std::printf("\"%s\": {\"least_us\": %.2f, \"median_us\": %.2f, \"p90_us\": %.2f}", name,
                times_.front(), quantile(0.5), quantile(0.9));
  }

 private:
  [[nodiscard]] double quantile(double share) const {
    return times_[static_cast<std::size_t>(share * static_cast<double>(times_.size() - 1))];
  }

  std::vector<double> times_;
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
  dorajit::Options options;
  options.trust_device_pointers = true;
  dorajit::Engine trusting(options);
  const dorajit::Kernel swiglu(kDescription, kSource);
  const auto call = [&](dorajit::Engine& with) {
    swiglu(with, driver.stream(), {gate, up, out}, {static_cast<double>(kSize)});
  };
  call(engine);
  call(trusting);
  Times checked;
  Times trusted;
  Times bare;
  for (int i = 0; i < kCalls; i += kCallsBeforeTheGpuCatchesUp) {
    const auto batch = [&](Times& times, const auto& one) {
      for (int j = 0; j < kCallsBeforeTheGpuCatchesUp; ++j) times.add(one);
      driver.synchronize();
    };
    batch(checked, [&] { call(engine); });
    batch(trusted, [&] { call(trusting); });
    batch(bare, [&] { driver.launch_empty(kSize); });
  }
  std::printf("{\"calls\": %d, ", kCalls);
  checked.print("dorajit");
  std::printf(", ");
  trusted.print("dorajit, trust_device_pointers");
  std::printf(", ");
  bare.print("cuLaunchKernel");
  std::printf("}\n");
  return 0;
}
