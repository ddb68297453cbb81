#include "tests/own_kernels/fake_gpu.h"

#include <dlfcn.h>

#include <stdexcept>

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
  behaviours().clear();
  launches().clear();
  adds_to_gate() = false;
}

}  // namespace dorajit::tests
