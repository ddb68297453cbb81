// A CUDA driver without a GPU: one device of compute capability 9.0, whose memory is the host's and
// whose launches a test runs. Work is done when it is enqueued; graphs do nothing, as what they
// captured has run.
#include "tests/fakes/fake_cuda/fake_cuda.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

using dorajit::driver::CuContext;
using dorajit::driver::CuDevice;
using dorajit::driver::CuDevicePtr;
using dorajit::driver::CuEvent;
using dorajit::driver::CuFunction;
using dorajit::driver::CuGraph;
using dorajit::driver::CuGraphExec;
using dorajit::driver::CuModule;
using dorajit::driver::CuResult;
using dorajit::driver::CuStream;
using dorajit::driver::DeviceAttribute;
using dorajit::driver::FunctionAttribute;
using dorajit::driver::LaunchConfig;
using dorajit::driver::PointerAttribute;

// NOLINTBEGIN(performance-no-int-to-ptr): handles and device addresses are numbers
namespace {

constexpr std::size_t kMemory = std::size_t{8} << 30;
constexpr double kUsualNs = 1e5;  // of a launch that does nothing

dorajit::tests::FakeCuda fake;
thread_local CuContext current = nullptr;
std::mutex mutex;  // guards handles, names and loaded_modules, which several threads use at once

template <class Handle>
Handle new_handle() {
  static int handles = 0;
  const std::scoped_lock lock(mutex);
  return reinterpret_cast<Handle>(static_cast<std::uintptr_t>(++handles));
}

void* host(CuDevicePtr address) { return reinterpret_cast<void*>(address); }

template <class T>
T parameter(void** parameters, int index) {
  T value;
  std::memcpy(&value, parameters[index], sizeof value);
  return value;
}

// The library's own kernel that compares sets of operands (autotune/search/set_difference.cc), of
// bytes and of f32.
void find_difference(void** parameters) {
  const auto* const data = parameter<const unsigned char*>(parameters, 0);
  const auto* const expected = parameter<const unsigned char*>(parameters, 1);
  const auto count = parameter<long long>(parameters, 3);
  const auto type = parameter<int>(parameters, 4);
  const auto tolerance = parameter<double>(parameters, 6);
  const auto usual = parameter<double>(parameters, 7);
  ++fake.comparisons;
  for (long long i = 0; i < count; ++i) {
    bool differs = false;
    if (type < 0) {
      differs = data[i] != expected[i];
    } else {
      float of[2];
      std::memcpy(&of[0], data + 4 * i, 4);
      std::memcpy(&of[1], expected + 4 * i, 4);
      const double wanted = of[1];
      differs = !(std::abs(of[0] - wanted) <= tolerance * std::max(std::abs(wanted), usual));
    }
    if (differs) *parameter<int*>(parameters, 2) = 1;
  }
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are those of the driver
extern "C" {

dorajit::tests::FakeCuda* dorajit_fake_cuda() { return &fake; }

CuResult cuInit(unsigned) { return 0; }
CuResult cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
CuResult cuGetErrorName(CuResult, const char** name) {
  *name = "CUDA_ERROR_FAKE";
  return 0;
}
CuResult cuGetErrorString(CuResult, const char** text) {
  *text = "a planted failure";
  return 0;
}
CuResult cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
CuResult cuDeviceGet(CuDevice* device, int ordinal) {
  *device = ordinal;
  return 0;
}
CuResult cuDeviceGetName(char* name, int size, CuDevice) {
  std::strncpy(name, "Fake GPU", static_cast<std::size_t>(size));
  return 0;
}
CuResult cuDeviceGetAttribute(int* value, DeviceAttribute which, CuDevice) {
  switch (which) {
    case DeviceAttribute::kMultiprocessorCount:
      *value = 4;
      break;
    case DeviceAttribute::kL2CacheBytes:
      *value = 1 << 16;
      break;
    case DeviceAttribute::kComputeCapabilityMajor:
      *value = 9;
      break;
    case DeviceAttribute::kSharedMemoryPerBlockOptIn:
      *value = 227 << 10;
      break;
    default:
      *value = 0;
  }
  return 0;
}
CuResult cuDeviceTotalMem_v2(std::size_t* bytes, CuDevice) {
  *bytes = kMemory;
  return 0;
}
CuResult cuDevicePrimaryCtxRetain(CuContext* context, CuDevice) {
  *context = reinterpret_cast<CuContext>(std::uintptr_t{1});
  return 0;
}
CuResult cuDevicePrimaryCtxRelease_v2(CuDevice) { return 0; }
CuResult cuCtxGetCurrent(CuContext* context) {
  *context = current;
  return 0;
}
CuResult cuCtxPushCurrent_v2(CuContext context) {
  current = context;
  return 0;
}
CuResult cuCtxPopCurrent_v2(CuContext* context) {
  *context = current;
  current = nullptr;
  return 0;
}
CuResult cuModuleLoadData(CuModule* module, const void*) {
  {
    const std::scoped_lock lock(mutex);
    ++fake.loaded_modules;
  }
  *module = new_handle<CuModule>();
  return 0;
}
CuResult cuModuleUnload(CuModule) { return 0; }
CuResult cuModuleGetFunction(CuFunction* function, CuModule, const char* name) {
  static auto* const names = new std::set<std::string>;  // a function is its name
  const std::scoped_lock lock(mutex);
  *function = reinterpret_cast<CuFunction>(const_cast<char*>(names->insert(name).first->c_str()));
  return 0;
}
CuResult cuFuncGetAttribute(int* value, FunctionAttribute, CuFunction) {
  *value = 0;
  return 0;
}
CuResult cuFuncSetAttribute(CuFunction, FunctionAttribute, int) { return 0; }
CuResult cuLaunchKernelEx(const LaunchConfig* config, CuFunction function, void** parameters,
                          void**) {
  if (std::strcmp(reinterpret_cast<const char*>(function), "dorajit_set_difference") == 0) {
    find_difference(parameters);
    return 0;
  }
  if (fake.launch == nullptr) {
    fake.elapsed_ns += kUsualNs;
    return 0;
  }
  return fake.launch(reinterpret_cast<const char*>(function), *config, parameters);
}
// The map is what was asked for, so that a launch shows it: the address, the type with the rank and
// the swizzle, five sizes, four strides and five sides of the box.
CuResult cuTensorMapEncodeTiled(dorajit::driver::TensorMap* map,
                                dorajit::driver::TensorMapType type, unsigned rank, void* data,
                                const unsigned long long* sizes, const unsigned long long* strides,
                                const unsigned* box, const unsigned*, int, int swizzle, int, int) {
  *map = {};
  map->words[0] = reinterpret_cast<std::uintptr_t>(data);
  map->words[1] = static_cast<unsigned>(type) | rank << 8U | static_cast<unsigned>(swizzle) << 16U;
  for (unsigned i = 0; i < rank; ++i) {
    map->words[2 + i] = sizes[i];
    if (i + 1 < rank) map->words[7 + i] = strides[i];
    map->words[11 + i] = box[i];
  }
  return 0;
}
CuResult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *free = kMemory / 64;
  *total = kMemory;
  return 0;
}
CuResult cuMemAlloc_v2(CuDevicePtr* address, std::size_t bytes) {
  if (bytes > fake.allocation_limit) return dorajit::driver::kCudaErrorOutOfMemory;
  constexpr std::size_t kAlignment = 512;
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  *address = reinterpret_cast<CuDevicePtr>(std::aligned_alloc(kAlignment, rounded));
  return *address == 0 ? dorajit::driver::kCudaErrorOutOfMemory : 0;
}
CuResult cuMemFree_v2(CuDevicePtr address) {
  std::free(host(address));
  return 0;
}
CuResult cuMemcpyHtoDAsync_v2(CuDevicePtr to, const void* from, std::size_t bytes, CuStream) {
  std::memcpy(host(to), from, bytes);
  return 0;
}
CuResult cuMemcpyDtoHAsync_v2(void* to, CuDevicePtr from, std::size_t bytes, CuStream) {
  fake.downloaded_bytes += bytes;
  std::memcpy(to, host(from), bytes);
  return 0;
}
CuResult cuMemcpyDtoDAsync_v2(CuDevicePtr to, CuDevicePtr from, std::size_t bytes, CuStream) {
  std::memmove(host(to), host(from), bytes);
  return 0;
}
CuResult cuMemsetD8Async(CuDevicePtr to, unsigned char byte, std::size_t bytes, CuStream) {
  std::memset(host(to), byte, bytes);
  return 0;
}
CuResult cuPointerGetAttributes(unsigned, const PointerAttribute*, void** values, CuDevicePtr) {
  *static_cast<unsigned*>(values[0]) = dorajit::driver::kMemoryTypeDevice;
  *static_cast<unsigned*>(values[1]) = 0;
  *static_cast<int*>(values[2]) = 0;
  return 0;
}
CuResult cuStreamCreate(CuStream* stream, unsigned) {
  *stream = new_handle<CuStream>();
  return 0;
}
CuResult cuStreamDestroy_v2(CuStream) { return 0; }
CuResult cuStreamSynchronize(CuStream) { return 0; }
CuResult cuThreadExchangeStreamCaptureMode(int*) { return 0; }
CuResult cuStreamIsCapturing(CuStream, int* status) {
  *status = fake.is_capturing ? 1 : 0;
  return 0;
}
// What is captured runs when it is enqueued. Its time passes when the graph is launched: then it
// falls between the events.
static double captured_from = 0;
static double captured_ns = 0;
CuResult cuStreamBeginCapture_v2(CuStream, int) {
  captured_from = fake.elapsed_ns;
  return 0;
}
CuResult cuStreamEndCapture(CuStream, CuGraph* graph) {
  captured_ns = fake.elapsed_ns - captured_from;
  *graph = new_handle<CuGraph>();
  return 0;
}
CuResult cuGraphInstantiateWithFlags(CuGraphExec* executable, CuGraph, unsigned long long) {
  *executable = new_handle<CuGraphExec>();
  return 0;
}
CuResult cuGraphUpload(CuGraphExec, CuStream) { return 0; }
CuResult cuGraphLaunch(CuGraphExec, CuStream) {
  fake.elapsed_ns += captured_ns;
  return 0;
}
CuResult cuGraphExecDestroy(CuGraphExec) { return 0; }
CuResult cuGraphDestroy(CuGraph) { return 0; }
CuResult cuEventCreate(CuEvent* event, unsigned) {
  *event = reinterpret_cast<CuEvent>(new double(0));
  return 0;
}
CuResult cuEventDestroy_v2(CuEvent event) {
  delete reinterpret_cast<double*>(event);
  return 0;
}
CuResult cuEventRecord(CuEvent event, CuStream) {
  *reinterpret_cast<double*>(event) = fake.elapsed_ns;
  return 0;
}
CuResult cuEventSynchronize(CuEvent) { return 0; }
CuResult cuEventElapsedTime(float* milliseconds, CuEvent from, CuEvent to) {
  *milliseconds =
      static_cast<float>((*reinterpret_cast<double*>(to) - *reinterpret_cast<double*>(from)) / 1e6);
  return 0;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
// NOLINTEND(performance-no-int-to-ptr)
