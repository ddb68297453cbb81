// The CUDA Driver API, opened at run time: one binary runs with and without a driver.
//
// Declares only the functions that the runtime calls. The constants are those of the Driver API's
// ABI, so the build needs no toolkit.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/base/error.h"

namespace dorajit::driver {

using CuResult = int;
using CuDevice = int;
using CuContext = struct CuContextOpaque*;
using CuModule = struct CuModuleOpaque*;
using CuFunction = struct CuFunctionOpaque*;
using CuStream = struct CuStreamOpaque*;
using CuEvent = struct CuEventOpaque*;
using CuGraph = struct CuGraphOpaque*;
using CuGraphExec = struct CuGraphExecOpaque*;
using CuDevicePtr = unsigned long long;

inline constexpr CuResult kCudaSuccess = 0;
inline constexpr CuResult kCudaErrorInvalidValue = 1;
inline constexpr CuResult kCudaErrorOutOfMemory = 2;
inline constexpr CuResult kCudaErrorCooperativeLaunchTooLarge = 720;
inline constexpr CuResult kCudaErrorStreamCaptureImplicit = 906;

enum class DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kL2CacheBytes = 38,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kPageableMemoryAccess = 88,
  kSharedMemoryPerBlockOptIn = 97,
};

// The architecture that a function was compiled for, as in 90 for sm_90.
enum class FunctionAttribute : int {
  kSharedBytes = 1,  // static
  kPtxVersion = 5,
  kMaxDynamicSharedBytes = 8,
};

// CUtensorMap and the constants of its encoding.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};
enum class TensorMapType : int {
  kUint8,
  kUint16,
  kUint32,
  kInt32,
  kUint64,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
};
inline constexpr int kTensorMapNotInterleaved = 0;
inline constexpr int kTensorMapSwizzle32 = 1;  // then 64 and 128 bytes
inline constexpr int kTensorMapPromotion256 = 3;
inline constexpr int kTensorMapZeros = 0;

// CUlaunchAttribute and CUlaunchConfig.
inline constexpr int kAttributeCooperative = 2;
inline constexpr int kAttributeClusterDimension = 4;
inline constexpr int kAttributeProgrammaticStreamSerialization = 6;
struct LaunchAttribute {
  int id;
  int padding;
  union {
    int allowed;
    unsigned cluster[3];
    char size[64];
  } value;
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  CuStream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);

enum class PointerAttribute : int { kMemoryType = 2, kIsManaged = 8, kDeviceOrdinal = 9 };
inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kMemoryTypeDevice = 2;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr int kCaptureRelaxed = 2;

// clang-format off
#define DORAJIT_CUDA_FUNCTIONS(X)                                                                  \
  X(init, "cuInit", (unsigned))                                                                    \
  X(driver_get_version, "cuDriverGetVersion", (int*))                                              \
  X(get_error_name, "cuGetErrorName", (CuResult, const char**))                                    \
  X(get_error_string, "cuGetErrorString", (CuResult, const char**))                                \
  X(device_get_count, "cuDeviceGetCount", (int*))                                                  \
  X(device_get, "cuDeviceGet", (CuDevice*, int))                                                   \
  X(device_get_name, "cuDeviceGetName", (char*, int, CuDevice))                                    \
  X(device_get_attribute, "cuDeviceGetAttribute", (int*, DeviceAttribute, CuDevice))               \
  X(device_total_mem, "cuDeviceTotalMem_v2", (std::size_t*, CuDevice))                             \
  X(primary_context_retain, "cuDevicePrimaryCtxRetain", (CuContext*, CuDevice))                    \
  X(primary_context_release, "cuDevicePrimaryCtxRelease_v2", (CuDevice))                           \
  X(context_get_current, "cuCtxGetCurrent", (CuContext*))                                          \
  X(context_push, "cuCtxPushCurrent_v2", (CuContext))                                              \
  X(context_pop, "cuCtxPopCurrent_v2", (CuContext*))                                               \
  X(module_load_data, "cuModuleLoadData", (CuModule*, const void*))                                \
  X(module_unload, "cuModuleUnload", (CuModule))                                                   \
  X(module_get_function, "cuModuleGetFunction", (CuFunction*, CuModule, const char*))              \
  X(function_get_attribute, "cuFuncGetAttribute", (int*, FunctionAttribute, CuFunction))           \
  X(function_set_attribute, "cuFuncSetAttribute", (CuFunction, FunctionAttribute, int))            \
  X(launch_kernel, "cuLaunchKernelEx", (const LaunchConfig*, CuFunction, void**, void**))          \
  X(mem_get_info, "cuMemGetInfo_v2", (std::size_t*, std::size_t*))                                 \
  X(mem_alloc, "cuMemAlloc_v2", (CuDevicePtr*, std::size_t))                                       \
  X(mem_free, "cuMemFree_v2", (CuDevicePtr))                                                       \
  X(memcpy_to_device, "cuMemcpyHtoDAsync_v2", (CuDevicePtr, const void*, std::size_t, CuStream))   \
  X(memcpy_to_host, "cuMemcpyDtoHAsync_v2", (void*, CuDevicePtr, std::size_t, CuStream))           \
  X(memcpy_on_device, "cuMemcpyDtoDAsync_v2", (CuDevicePtr, CuDevicePtr, std::size_t, CuStream))   \
  X(memset_bytes, "cuMemsetD8Async", (CuDevicePtr, unsigned char, std::size_t, CuStream))          \
  X(pointer_get_attributes, "cuPointerGetAttributes",                                              \
    (unsigned, const PointerAttribute*, void**, CuDevicePtr))                                      \
  X(stream_create, "cuStreamCreate", (CuStream*, unsigned))                                        \
  X(stream_destroy, "cuStreamDestroy_v2", (CuStream))                                              \
  X(stream_synchronize, "cuStreamSynchronize", (CuStream))                                         \
  X(thread_exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int*))                     \
  X(stream_is_capturing, "cuStreamIsCapturing", (CuStream, int*))                                  \
  X(stream_begin_capture, "cuStreamBeginCapture_v2", (CuStream, int))                              \
  X(stream_end_capture, "cuStreamEndCapture", (CuStream, CuGraph*))                                \
  X(graph_instantiate, "cuGraphInstantiateWithFlags", (CuGraphExec*, CuGraph, unsigned long long)) \
  X(graph_upload, "cuGraphUpload", (CuGraphExec, CuStream))                                        \
  X(graph_launch, "cuGraphLaunch", (CuGraphExec, CuStream))                                        \
  X(graph_exec_destroy, "cuGraphExecDestroy", (CuGraphExec))                                       \
  X(graph_destroy, "cuGraphDestroy", (CuGraph))                                                    \
  X(event_create, "cuEventCreate", (CuEvent*, unsigned))                                           \
  X(event_destroy, "cuEventDestroy_v2", (CuEvent))                                                 \
  X(event_record, "cuEventRecord", (CuEvent, CuStream))                                            \
  X(event_synchronize, "cuEventSynchronize", (CuEvent))                                            \
  X(event_elapsed_time, "cuEventElapsedTime", (float*, CuEvent, CuEvent))

// Functions that drivers before CUDA 12 lack; null there.
#define DORAJIT_NEWER_CUDA_FUNCTIONS(X)                                                            \
  X(tensor_map_encode, "cuTensorMapEncodeTiled",                                                   \
    (TensorMap*, TensorMapType, unsigned, void*, const unsigned long long*,                        \
     const unsigned long long*,                                                                    \
     const unsigned*, const unsigned*, int, int, int, int))
// clang-format on

// The function table. Immutable after opening: any thread may call through it.
class CudaDriver {
 public:
  // Opens libcuda and initialises it once per process; later calls return the same result.
  // kNoDriver if there is no driver, it is too old, or it finds no device.
  static Result<const CudaDriver*> get();

#define DORAJIT_DECLARE(member, symbol, parameters) \
  CuResult(*member) parameters = nullptr;           \
  static constexpr const char* symbol_of_##member = symbol;
  DORAJIT_CUDA_FUNCTIONS(DORAJIT_DECLARE)
  DORAJIT_NEWER_CUDA_FUNCTIONS(DORAJIT_DECLARE)
#undef DORAJIT_DECLARE

  // The error of a failed call: "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
  [[nodiscard]] Error error(const char* call, CuResult result) const;

  // "13.0"
  [[nodiscard]] std::string version() const;

 private:
  static Result<const CudaDriver*> open();
};

// Makes a context current during a scope. Costs only one comparison if it is current already.
class ScopedContext {
 public:
  ScopedContext(const CudaDriver& driver, CuContext context);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  [[nodiscard]] Status status() const;

 private:
  const CudaDriver& driver_;
  CuResult result_ = kCudaSuccess;
  bool pushed_ = false;
};

// During a scope, allows this thread to make calls that a graph capture in another stream or thread
// would forbid. The capture is not affected: allocations and loads made here are not part of any
// graph.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaDriver& driver) : driver_(driver) {
    driver_.thread_exchange_capture_mode(&mode_);
  }
  ~RelaxedCapture() { driver_.thread_exchange_capture_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const CudaDriver& driver_;
  int mode_ = kCaptureRelaxed;
};

}  // namespace dorajit::driver

// Returns from the enclosing function with the driver's error if `api.member(...)` fails.
#define DORAJIT_CUDA_TRY(api, member, ...)                                               \
  do {                                                                                   \
    if (const auto dorajit_cuda = (api).member(__VA_ARGS__); dorajit_cuda != 0) {        \
      return std::unexpected(                                                            \
          (api).error(::dorajit::driver::CudaDriver::symbol_of_##member, dorajit_cuda)); \
    }                                                                                    \
  } while (false)
