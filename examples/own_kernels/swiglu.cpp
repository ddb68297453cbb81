// A kernel of one's own from C++: described, tuned on its first call, and checked.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <dorajit/own_kernel.hpp>
#include <fstream>
#include <sstream>
#include <vector>

namespace {

constexpr const char *kDescription = R"({
  "name": "swiglu", "entry": "swiglu<BLOCK, VEC>",
  "arguments": [["gate", "in", "T[n]"], ["up", "in", "T[n]"], ["out", "out", "T[n]"], ["n", "int64"]],
  "types": {"T": ["float32", "bfloat16", "float16"]},
  "parameters": {"BLOCK": [64, 128, 256, 512], "VEC": [1, 2, 4, 8]},
  "default": {"BLOCK": 256, "VEC": 1},
  "constraint": "n % VEC == 0", "grid": "ceil_div(n, BLOCK * VEC)",
                     "block" : "BLOCK", "key" : [ "T", "bucket(n)" ]
})";

std::string read_file(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A vector of a GPU that is the host's after copy().
struct Vector {
  explicit Vector(std::size_t size) : host(size) { cudaMalloc(&device, size * sizeof(float)); }
  ~Vector() { cudaFree(device); }
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;

  void to_device() {
    cudaMemcpy(device, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice);
  }
  void to_host() {
    cudaMemcpy(host.data(), device, host.size() * sizeof(float), cudaMemcpyDeviceToHost);
  }
  dorajit::TensorRef ref() const {
    return {device,
            {static_cast<std::int64_t>(host.size())},
            dorajit::ElementType::kFloat32,
            dorajit::Device::cuda()};
  }

  std::vector<float> host;
  void* device = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: swiglu swiglu.cu\n");
    return 2;
  }
  constexpr std::size_t kSize = 1 << 20;
  Vector gate(kSize);
  Vector up(kSize);
  Vector out(kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    gate.host[i] = 0.001F * static_cast<float>(i % 7919) - 4.0F;
    up.host[i] = 1.0F + 0.125F * static_cast<float>(i % 13);
  }
  gate.to_device();
  up.to_device();

  dorajit::Engine engine;
  const dorajit::Kernel swiglu(kDescription, read_file(argv[1]));
  swiglu(engine, nullptr, {gate.ref(), up.ref(), out.ref()}, {static_cast<double>(kSize)});
  out.to_host();

  double largest = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    const double g = gate.host[i];
    const double expected = g / (1 + std::exp(-g)) * up.host[i];
    largest = std::fmax(largest, std::fabs(out.host[i] - expected));
  }
  const auto explanation =
      swiglu.explain(engine, {gate.ref(), up.ref(), out.ref()}, {static_cast<double>(kSize)});
  std::printf("swiglu: %s (%s), largest error %.1e\n",
              explanation ? explanation->config.c_str() : "-",
              explanation ? explanation->source.c_str() : "-", largest);
  return largest < 1e-4 ? 0 : 1;
}
