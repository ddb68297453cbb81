// Own kernels on a GPU that is none: the driver and NVRTC are fakes, and the kernel is run here.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dorajit/own_kernel.h"
#include "runtime/base/clock.h"
#include "tests/bindings/c/c_abi_fixture.h"
#include "tests/fakes/fake_cuda/fake_cuda.h"
#include "tests/own_kernels/descriptions.h"
#include "tests/runtime/fake_nvrtc/fake_nvrtc.h"

namespace dorajit::tests {

// What launches of one config do, by the symbol that the fake NVRTC gives them: "swiglu<256, 4>".
struct Behaviour {
  double time_ns = 1e6;
  int result = 0;                                        // of the launch
  std::function<void(float* out, long long n)> spoil{};  // after the right outputs
  long long leaves = 0;                                  // last outputs that are not written
  bool adds_to_out = false;                              // adds 1 to outputs that were positive
};

struct Launched {
  std::string entry;
  unsigned grid;
  unsigned block;
  unsigned shared_bytes;
  long long n;
  float first_gate;  // before the launch
};

class OwnKernelTest : public bindings::CAbiTest {
 protected:
  // Loads the fakes.
  OwnKernelTest();

  // As of the environment; launches and compilations spend what the fakes say of the time for
  // tuning.
  bindings::EngineHandle make_engine();

  // One that is made where it is first asked for.
  dorajit_engine* engine() {
    if (!engine_) engine_ = make_engine();
    return engine_.get();
  }
  dorajit_statistics statistics() { return bindings::statistics_of(engine()); }

  static std::map<std::string, Behaviour>& behaviours() {
    static std::map<std::string, Behaviour> all;
    return all;
  }
  // Whether each launch adds 1 to `gate`, after it has read it.
  static bool& adds_to_gate() {
    static bool adds = false;
    return adds;
  }
  static std::vector<Launched>& launches() {
    static std::vector<Launched> all;
    return all;
  }

  const dorajit_operation* create(const Json& json) {
    const dorajit_operation* kernel = nullptr;
    const auto made = bindings::outcome_of([&](dorajit_error** error) {
      return dorajit_kernel_create(json.dump().c_str(), &kernel, error);
    });
    EXPECT_EQ(made.status, DORAJIT_OK) << made.message;
    return kernel;
  }

  // What the engine prepared first; its strings live as long as the engine.
  static dorajit_explanation first_plan(const dorajit_engine* engine) {
    dorajit_explanation found{};
    found.struct_size = sizeof found;
    EXPECT_EQ(dorajit_explain_at(engine, 0, &found, nullptr), DORAJIT_OK);
    return found;
  }

  static FakeCuda& fake_of_process() {
    static FakeCuda& fake =
        *reinterpret_cast<FakeCuda* (*)()>(::dlsym(RTLD_DEFAULT, "dorajit_fake_cuda"))();
    return fake;
  }

  FakeCuda* fake_ = nullptr;
  FakeNvrtc* nvrtc_ = nullptr;

 private:
  bindings::EngineHandle engine_;

  static int launch_swiglu(const char* entry, const driver::LaunchConfig& config,
                           void** parameters) {
    const auto found = behaviours().find(entry);
    const Behaviour behaviour = found == behaviours().end() ? Behaviour{} : found->second;
    fake_of_process().elapsed_ns += behaviour.time_ns;
    if (behaviour.result != 0) return behaviour.result;
    const auto* const gate = *static_cast<const float**>(parameters[0]);
    const auto* const up = *static_cast<const float**>(parameters[1]);
    auto* const out = *static_cast<float**>(parameters[2]);
    const auto n = *static_cast<long long*>(parameters[3]);
    const float first_gate = gate[0];
    const std::string text = entry;
    const long long vector = std::stoll(text.substr(text.find(',') + 1));
    const long long covered = static_cast<long long>(config.grid_x) * config.block_x * vector;
    for (long long i = 0; i < std::min(n - behaviour.leaves, covered); ++i) {
      out[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i] +
               (behaviour.adds_to_out && out[i] > 0 ? 1 : 0);
    }
    if (adds_to_gate()) {
      for (long long i = 0; i < n; ++i) const_cast<float*>(gate)[i] += 1;
    }
    if (behaviour.spoil) behaviour.spoil(out, n);
    launches().push_back(
        {entry, config.grid_x, config.block_x, config.shared_bytes, n, first_gate});
    return 0;
  }
};

// Three vectors of a SwiGLU in memory that the fake GPU reads.
struct SwigluCall {
  explicit SwigluCall(std::int64_t size, std::size_t shift = 0)
      : n(size), gate(make(size)), up(make(size)), out(make(size)) {
    for (std::int64_t i = 0; i < n; ++i) {
      at(gate, i) = 0.01F * static_cast<float>(i % 100) - 0.3F;
      at(up, i) = 1 + 0.25F * static_cast<float>(i % 7);
    }
    offset = shift;
  }

  static std::vector<std::byte> make(std::int64_t size) {
    return std::vector<std::byte>(static_cast<std::size_t>(size) * 4 + 64);
  }
  // The first address of that is aligned to 16 bytes.
  static float* base(std::vector<std::byte>& bytes) {
    void* address = bytes.data();
    std::size_t space = bytes.size();
    return static_cast<float*>(std::align(16, 1, address, space));
  }
  static float& at(std::vector<std::byte>& bytes, std::int64_t i) { return base(bytes)[i]; }

  struct Tensors {
    std::int64_t shape[1];
    DLTensor tensors[3];
    const DLTensor* pointers[3];
  };
  Tensors* describe() {
    described.shape[0] = n;
    std::vector<std::byte>* const memory[] = {&gate, &up, &out};
    for (int i = 0; i < 3; ++i) {
      described.tensors[i] = {.data = base(*memory[i]) + offset,
                              .device = {kDLCUDA, 0},
                              .ndim = 1,
                              .dtype = {kDLFloat, 32, 1},
                              .shape = described.shape,
                              .strides = nullptr,
                              .byte_offset = 0};
      described.pointers[i] = &described.tensors[i];
    }
    return &described;
  }

  bindings::Outcome run(dorajit_engine* engine, const dorajit_operation* kernel) {
    return run(engine, kernel, static_cast<double>(n));
  }
  bindings::Outcome run(dorajit_engine* engine, const dorajit_operation* kernel, double given) {
    return run_as(engine, kernel, describe(), given);
  }
  static bindings::Outcome run_as(dorajit_engine* engine, const dorajit_operation* kernel,
                                  const Tensors* call, double given) {
    return bindings::outcome_of([&](dorajit_error** error) {
      return dorajit_launch(engine, nullptr, kernel, call->pointers, 3, &given, 1, nullptr, 0,
                            error);
    });
  }

  bool is_right() {
    for (std::int64_t i = 0; i < n; ++i) {
      const float g = at(gate, i);
      if (at(out, i) != g / (1 + std::exp(-g)) * at(up, i)) return false;
    }
    return true;
  }

  std::int64_t n;
  std::size_t offset = 0;  // of the data, in elements
  std::vector<std::byte> gate;
  std::vector<std::byte> up;
  std::vector<std::byte> out;
  Tensors described{};
};

}  // namespace dorajit::tests
