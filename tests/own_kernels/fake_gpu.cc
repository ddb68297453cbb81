#include "tests/own_kernels/fake_gpu.h"

#include <dlfcn.h>

#include <memory>
#include <stdexcept>

#include "bindings/c/engine_handle.h"

namespace dorajit::tests {

OwnKernelTest::OwnKernelTest() {
  set_variable("DORAJIT_NVRTC", DORAJIT_FAKE_NVRTC);
  // Starting processes takes longer than the budgets of these tests.
  set_variable("DORAJIT_WORKER", "none");
  // Loaded before the engine asks for libcuda.so.1, which is this library from then on.
  static void* const library = ::dlopen(DORAJIT_FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  fake_ = reinterpret_cast<FakeCuda* (*)()>(::dlsym(library, "dorajit_fake_cuda"))();
  *fake_ = {.launch = &OwnKernelTest::launch_swiglu};
  nvrtc_ = &fake_nvrtc(DORAJIT_FAKE_NVRTC);
  nvrtc_->compilation_ns = 0;
  behaviours().clear();
  launches().clear();
  adds_to_gate() = false;
}

bindings::EngineHandle OwnKernelTest::make_engine() {
  const auto settings = bindings::settings_from_options(nullptr);
  if (!settings) throw std::runtime_error(settings.error().message);
  const Clock clock = [cuda = fake_, nvrtc = nvrtc_] {
    return after(Moment(std::chrono::nanoseconds(nvrtc->spent_ns)),
                 Seconds(cuda->elapsed_ns / 1e9));
  };
  return bindings::EngineHandle(
      new dorajit_engine(*settings, autotune::make_engine(*settings, clock)));
}

}  // namespace dorajit::tests
