// A fake NVRTC with controlled compile times. Compiling for sm_75 never ends; for sm_80 it ends
// when a test says so; all others end at once. It refuses to compile with its cache. Some options
// misbehave, those with an expression only for that one.
#include "tests/runtime/fake_nvrtc/fake_nvrtc.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

namespace {

dorajit::tests::FakeNvrtc of_process;

constexpr char kCode[] =
    "\x7f"
    "ELF, or so it says";
constexpr char kPtx[] = "// Compiler Build ID: fake\n";

struct Program {
  std::string expression;
};

int put(const char* text, std::size_t size, char* to) {
  std::memcpy(to, text, size);
  return 0;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are those of NVRTC
extern "C" {

dorajit::tests::FakeNvrtc* dorajit_fake_nvrtc() { return &of_process; }

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
const char* nvrtcGetErrorString(int) { return "an error"; }
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 3;
  return 0;
}
int nvrtcGetSupportedArchs(int* archs) {
  archs[0] = 75;
  archs[1] = 80;
  archs[2] = 90;
  return 0;
}
int nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*,
                       const char* const*) {
  *program = new Program;
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}
int nvrtcAddNameExpression(void* program, const char* expression) {
  static_cast<Program*>(program)->expression = expression;
  return 0;
}
int nvrtcGetLoweredName(void*, const char* expression, const char** name) {
  *name = expression;
  return 0;
}
int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  const auto is_no_cache = [](std::string_view option) { return option == "--no-cache"; };
  if (std::none_of(options, options + count, is_no_cache)) return 6;
  for (int i = 0; i < count; ++i) {
    const std::string_view option = options[i];
    while (option == "--gpu-architecture=sm_80" && of_process.is_held) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::string& expression = static_cast<const Program*>(program)->expression;
    if (option == "-DCRASHES=" + expression) std::raise(SIGSEGV);
    if (option == "-DTAKES_8_GIB") {
      void* const bytes = ::mmap(nullptr, std::size_t{8} << 30, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (bytes == MAP_FAILED) return 1;
      ::munmap(bytes, std::size_t{8} << 30);
    }
    while (option == "--gpu-architecture=sm_75" || option == "-DNEVER_ENDS=" + expression) {
      const volatile bool spins = true;
      if (!spins) break;
    }
  }
  of_process.spent_ns += of_process.compilation_ns;
  return 0;
}
int nvrtcGetProgramLogSize(void*, std::size_t* size) {
  *size = 1;
  return 0;
}
int nvrtcGetProgramLog(void*, char* to) { return put("", 1, to); }
int nvrtcGetCUBINSize(void*, std::size_t* size) {
  *size = sizeof kCode;
  return 0;
}
int nvrtcGetCUBIN(void*, char* to) { return put(kCode, sizeof kCode, to); }
int nvrtcGetPTXSize(void*, std::size_t* size) {
  *size = sizeof kPtx;
  return 0;
}
int nvrtcGetPTX(void*, char* to) { return put(kPtx, sizeof kPtx, to); }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
