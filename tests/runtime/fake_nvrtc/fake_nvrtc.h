// What tests tell the fake NVRTC by a symbol of it.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <stdexcept>

namespace dorajit::tests {

struct FakeNvrtc {
  // How long each compilation takes; not passed, but added to `spent_ns`.
  std::atomic<long long> compilation_ns = 0;
  std::atomic<long long> spent_ns = 0;
  std::atomic<bool> is_held = false;  // while it is set, compilations for sm_80 do not end
};

// The one of the library at that path, which is loaded and stays so.
inline FakeNvrtc& fake_nvrtc(const char* path) {
  void* const library = ::dlopen(path, RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  return *reinterpret_cast<FakeNvrtc* (*)()>(::dlsym(library, "dorajit_fake_nvrtc"))();
}

}  // namespace dorajit::tests
