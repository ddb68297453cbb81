#include "runtime/driver/cuda_driver.h"

#include <format>
#include <memory>

#include "runtime/base/dynamic_library.h"

namespace dorajit::driver {
namespace {

constexpr int kOldestDriver = 12000;

// The remedy for errors that concern the process rather than the call.
const char* remedy(CuResult result) {
  constexpr CuResult kIllegalAddress = 700;
  constexpr CuResult kLaunchTimeout = 702;
  constexpr CuResult kIllegalInstruction = 715;
  constexpr CuResult kLaunchFailed = 719;
  switch (result) {
    case kCudaErrorOutOfMemory:
      return "; free device memory, or lower DORAJIT_SCRATCH_BYTES if this happened while tuning";
    case kIllegalAddress:
    case kLaunchTimeout:
    case kIllegalInstruction:
    case kLaunchFailed:
      return "; a kernel of this process failed earlier and the GPU context is lost: restart the "
             "process, and run it under compute-sanitizer to find that kernel";
    default:
      return "";
  }
}

Result<DynamicLibrary> open_library() {
  for (const char* soname : {"libcuda.so.1", "libcuda.so"}) {
    if (auto library = DynamicLibrary::open(soname)) return library;
  }
  return fail(StatusCode::kNoDriver,
              "the NVIDIA driver library libcuda.so.1 was not found; install the NVIDIA driver (in "
              "a container, start it with GPU access), or use the CPU device");
}

}  // namespace

Result<const CudaDriver*> CudaDriver::get() {
  static const Result<const CudaDriver*> instance = open();
  return instance;
}

Result<const CudaDriver*> CudaDriver::open() {
  DORAJIT_ASSIGN(DynamicLibrary library, open_library());
  auto driver = std::make_unique<CudaDriver>();
  const char* missing = nullptr;
#define DORAJIT_LOAD(member, symbol_name, parameters)                                     \
  driver->member = reinterpret_cast<CuResult(*) parameters>(library.symbol(symbol_name)); \
  if (driver->member == nullptr) missing = symbol_name;
  DORAJIT_CUDA_FUNCTIONS(DORAJIT_LOAD)
#undef DORAJIT_LOAD
#define DORAJIT_LOAD_NEWER(member, symbol_name, parameters) \
  driver->member = reinterpret_cast<CuResult(*) parameters>(library.symbol(symbol_name));
  DORAJIT_NEWER_CUDA_FUNCTIONS(DORAJIT_LOAD_NEWER)
#undef DORAJIT_LOAD_NEWER
  library.keep_forever();
  if (missing != nullptr) {
    return fail(StatusCode::kNoDriver,
                std::format("the NVIDIA driver has no {}; update it to one that supports CUDA 12 "
                            "or later, or use the CPU device",
                            missing));
  }
  if (const CuResult result = driver->init(0); result != kCudaSuccess) {
    Error error = driver->error("cuInit", result);
    error.code = StatusCode::kNoDriver;
    error.message += "; check that a GPU is visible (nvidia-smi), or use the CPU device";
    return std::unexpected(error);
  }
  int version = 0;
  DORAJIT_CUDA_TRY(*driver, driver_get_version, &version);
  if (version < kOldestDriver) {
    return fail(StatusCode::kNoDriver,
                std::format("the NVIDIA driver supports CUDA {}.{}; update it to one that supports "
                            "CUDA 12 or later, or use the CPU device",
                            version / 1000, version % 1000 / 10));
  }
  return driver.release();  // never destroyed, as the driver itself
}

Error CudaDriver::error(const char* call, CuResult result) const {
  const char* code = nullptr;
  const char* text = nullptr;
  get_error_name(result, &code);
  get_error_string(result, &text);
  return {result == kCudaErrorOutOfMemory ? StatusCode::kOutOfMemory : StatusCode::kDriverError,
          std::format("CUDA driver call {} failed: {} ({}){}", call,
                      code != nullptr ? code : std::to_string(result).c_str(),
                      text != nullptr ? text : "no description", remedy(result)),
          {}};
}

std::string CudaDriver::version() const {
  int version = 0;
  driver_get_version(&version);
  return std::format("{}.{}", version / 1000, version % 1000 / 10);
}

ScopedContext::ScopedContext(const CudaDriver& driver, CuContext context) : driver_(driver) {
  CuContext current = nullptr;
  driver_.context_get_current(&current);
  if (current == context) return;
  result_ = driver_.context_push(context);
  pushed_ = result_ == kCudaSuccess;
}

ScopedContext::~ScopedContext() {
  if (!pushed_) return;
  CuContext popped = nullptr;
  driver_.context_pop(&popped);
}

Status ScopedContext::status() const {
  if (result_ == kCudaSuccess) return {};
  return std::unexpected(driver_.error("cuCtxPushCurrent_v2", result_));
}

}  // namespace dorajit::driver
