#include "runtime/device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <bit>
#include <format>
#include <iterator>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

#include "kernel_templates/dependent_launch.h"
#include "kernel_templates/template.h"
#include "runtime/device/cuda/driver_objects.h"

namespace dorajit::device {
namespace {

using driver::CudaDriver;
using driver::CuDevicePtr;
using driver::CuStream;
using driver::DeviceAttribute;
using driver::RelaxedCapture;
using driver::ScopedContext;

constexpr long long kWidestGrid = (1LL << 31) - 1;
constexpr long long kTallestGrid = 65535;
// The first driver version that can capture programmatic launches into graphs.
constexpr int kDriverForEarlyLaunches = 12030;

CuDevicePtr address(const void* pointer) { return std::bit_cast<CuDevicePtr>(pointer); }

CuStream as_stream(Stream stream) { return static_cast<CuStream>(stream); }

class CudaKernel final : public LoadedKernel {
 public:
  CudaKernel(const kernels::Variant& variant, const CudaDriver& driver, driver::CuContext context,
             driver::CuModule module)
      : LoadedKernel(variant), driver_(driver), context_(context), module_(module) {}
  ~CudaKernel() override {
    const ScopedContext scope(driver_, context_);
    const RelaxedCapture relaxed(driver_);
    if (scope.status()) driver_.module_unload(module_);
  }

  // `entries`: the functions of the stages, as an artifact has them. `max_shared_bytes`: maximum
  // shared memory of a program, static and dynamic together.
  Status find_functions(std::string_view entries, int max_shared_bytes) {
    for (const auto part : std::views::split(entries, kernels::Program::kBetweenEntries)) {
      const std::string entry{std::string_view(part)};
      if (count_ == stages_.size()) {
        return fail(StatusCode::kDriverError, "a compiled kernel has too many entries");
      }
      driver::CuFunction& function = stages_[count_++];
      DORAJIT_CUDA_TRY(driver_, module_get_function, &function, module_, entry.c_str());
      int static_bytes = 0;
      DORAJIT_CUDA_TRY(driver_, function_get_attribute, &static_bytes,
                       driver::FunctionAttribute::kSharedBytes, function);
      DORAJIT_CUDA_TRY(driver_, function_set_attribute, function,
                       driver::FunctionAttribute::kMaxDynamicSharedBytes,
                       max_shared_bytes - static_bytes);
    }
    if (kernels::template_of(variant()).stages == nullptr) return {};
    int compiled_for = 0;
    DORAJIT_CUDA_TRY(driver_, function_get_attribute, &compiled_for,
                     driver::FunctionAttribute::kPtxVersion, stages_[1]);
    later_wait_ = compiled_for >= DORAJIT_DEPENDENT_LAUNCH_ARCH;
    return {};
  }

  [[nodiscard]] driver::CuFunction stage(std::size_t number) const { return stages_[number]; }
  // Whether a stage may be launched before the one ahead of it has finished.
  [[nodiscard]] bool later_wait() const { return later_wait_; }

 private:
  const CudaDriver& driver_;
  driver::CuContext context_;
  driver::CuModule module_;
  std::array<driver::CuFunction, 1 + kernels::kMaxLaterStages> stages_{};
  std::size_t count_ = 0;
  bool later_wait_ = false;
};

class CudaBuffer final : public Buffer {
 public:
  CudaBuffer(const CudaDriver& driver, driver::CuContext context, CuDevicePtr data,
             std::size_t size)
      : Buffer(std::bit_cast<std::byte*>(data), size), driver_(driver), context_(context) {}
  ~CudaBuffer() override {
    const ScopedContext scope(driver_, context_);
    const RelaxedCapture relaxed(driver_);
    if (scope.status()) driver_.mem_free(address(data()));
  }

 private:
  const CudaDriver& driver_;
  driver::CuContext context_;
};

// The two events around a measurement.
class EventPair {
 public:
  explicit EventPair(const CudaDriver& driver) : driver_(driver) {}
  ~EventPair() {
    if (start != nullptr) driver_.event_destroy(start);
    if (stop != nullptr) driver_.event_destroy(stop);
  }
  EventPair(const EventPair&) = delete;
  EventPair& operator=(const EventPair&) = delete;

  Status create() {
    DORAJIT_CUDA_TRY(driver_, event_create, &start, driver::kEventDefault);
    DORAJIT_CUDA_TRY(driver_, event_create, &stop, driver::kEventDefault);
    return {};
  }

  driver::CuEvent start = nullptr;
  driver::CuEvent stop = nullptr;

 private:
  const CudaDriver& driver_;
};

}  // namespace

Result<int> CudaDevice::count() {
  DORAJIT_ASSIGN(const CudaDriver* driver, CudaDriver::get());
  int devices = 0;
  DORAJIT_CUDA_TRY(*driver, device_get_count, &devices);
  return devices;
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::open(int ordinal) {
  DORAJIT_ASSIGN(const CudaDriver* driver, CudaDriver::get());
  DORAJIT_ASSIGN(const int devices, count());
  if (ordinal < 0 || ordinal >= devices) {
    return fail(StatusCode::kInvalidArgument,
                std::format("there is no CUDA device {}; this process sees {} (check "
                            "CUDA_VISIBLE_DEVICES)",
                            ordinal, devices));
  }
  driver::CuDevice device = 0;
  DORAJIT_CUDA_TRY(*driver, device_get, &device, ordinal);
  driver::CuContext context = nullptr;
  DORAJIT_CUDA_TRY(*driver, primary_context_retain, &context, device);
  std::unique_ptr<CudaDevice> opened(new CudaDevice(*driver, device, context));
  DORAJIT_TRY(opened->read_info(ordinal));
  DORAJIT_TRY(opened->create_stream());
  return opened;
}

CudaDevice::CudaDevice(const CudaDriver& driver, driver::CuDevice device, driver::CuContext context)
    : driver_(driver), device_(device), context_(context) {}

CudaDevice::~CudaDevice() {
  {
    const ScopedContext scope(driver_, context_);
    const RelaxedCapture relaxed(driver_);
    if (own_stream_ != nullptr) driver_.stream_destroy(own_stream_);
  }
  driver_.primary_context_release(device_);
}

Status CudaDevice::create_stream() {
  const ScopedContext scope(driver_, context_);
  const RelaxedCapture relaxed(driver_);
  DORAJIT_TRY(scope.status());
  DORAJIT_CUDA_TRY(driver_, stream_create, &own_stream_, driver::kStreamNonBlocking);
  return {};
}

Status CudaDevice::read_info(int ordinal) {
  char text[256] = {};
  DORAJIT_CUDA_TRY(driver_, device_get_name, text, sizeof text, device_);
  // Up to its first NUL; an array would be formatted with all its zeros.
  const std::string name = text;
  auto attribute = [this](DeviceAttribute which) {
    int value = 0;
    driver_.device_get_attribute(&value, which, device_);
    return value;
  };
  std::size_t memory = 0;
  DORAJIT_CUDA_TRY(driver_, device_total_mem, &memory, device_);
  const int major = attribute(DeviceAttribute::kComputeCapabilityMajor);
  const int minor = attribute(DeviceAttribute::kComputeCapabilityMinor);
  const int processors = attribute(DeviceAttribute::kMultiprocessorCount);
  const int cache = attribute(DeviceAttribute::kL2CacheBytes);
  int driver_version = 0;
  DORAJIT_CUDA_TRY(driver_, driver_get_version, &driver_version);
  launches_early_ = driver_version >= kDriverForEarlyLaunches &&
                    10 * major + minor >= DORAJIT_DEPENDENT_LAUNCH_ARCH;
  max_shared_bytes_ = attribute(DeviceAttribute::kSharedMemoryPerBlockOptIn);
  pageable_access_ = attribute(DeviceAttribute::kPageableMemoryAccess) != 0;
  info_ = {.traits = {.kind = kernels::DeviceKind::kCuda,
                      .processors = processors,
                      .architecture = 10 * major + minor},
           .ordinal = ordinal,
           .name = name,
           // For a MIG slice, the name shows the profile and the remaining fields show its share.
           .fingerprint = std::format("cuda/{}/sm_{}{}/{} SMs/{} KiB L2/{} GiB", name, major, minor,
                                      processors, cache / 1024, (memory + (1ULL << 29)) >> 30),
           .driver_version = driver_.version(),
           .target = compile::cuda_target(major, minor),
           .cache_bytes = cache,
           .memory_bytes = static_cast<std::int64_t>(memory)};
  return {};
}

Result<std::shared_ptr<const LoadedKernel>> CudaDevice::load(const Artifact& artifact,
                                                             const kernels::Variant& variant) {
  const ScopedContext scope(driver_, context_);
  const RelaxedCapture relaxed(driver_);
  DORAJIT_TRY(scope.status());
  driver::CuModule module = nullptr;
  DORAJIT_CUDA_TRY(driver_, module_load_data, &module, artifact.code.c_str());
  auto kernel = std::make_shared<CudaKernel>(variant, driver_, context_, module);
  DORAJIT_TRY(kernel->find_functions(artifact.entry, max_shared_bytes_));
  return kernel;
}

Status CudaDevice::launch(const LoadedKernel& kernel, const kernels::Config& config,
                          const kernels::LaunchArguments& arguments, Stream stream) {
  const ScopedContext scope(driver_, context_);
  DORAJIT_TRY(scope.status());
  const auto& own = static_cast<const CudaKernel&>(kernel);
  const kernels::LaunchShape shape =
      kernels::launch_shape(own.variant(), config, arguments, info_.traits.processors);
  // The second parameter of a kernel is its tensor maps; a kernel without maps ignores it.
  TensorMaps maps;
  const kernels::KernelArguments& of_kernel = arguments;
  void* whole[] = {const_cast<kernels::KernelArguments*>(&of_kernel), maps.data()};
  kernels::KernelParameters separate;
  separate.tensor_maps = reinterpret_cast<std::byte*>(maps.data());
  void** parameters = whole;
  if (const auto put = kernels::template_of(own.variant()).put_parameters; put != nullptr) {
    put(own.variant(), arguments, separate);
    parameters = separate.addresses.data();
  }
  if (const auto boxes_of = kernels::template_of(own.variant()).tensor_boxes; boxes_of != nullptr) {
    const kernels::TensorBoxes boxes =
        boxes_of(own.variant(), config, arguments, info_.traits.processors);
    DORAJIT_TRY(encode_tensor_maps(driver_, boxes, maps));
  }
  const auto launch_stage = [&](driver::CuFunction function, const kernels::StageShape& stage,
                                bool early) -> Status {
    std::array<driver::LaunchAttribute, 3> attributes;
    unsigned num_attributes = 0;
    const auto allow = [&](int attribute) {
      attributes[num_attributes++] = {.id = attribute, .padding = 0, .value = {.allowed = 1}};
    };
    if (early) allow(driver::kAttributeProgrammaticStreamSerialization);
    if (stage.is_cooperative) allow(driver::kAttributeCooperative);
    if (stage.has_cluster()) {
      attributes[num_attributes++] = {
          .id = driver::kAttributeClusterDimension,
          .padding = 0,
          .value = {.cluster = {static_cast<unsigned>(stage.cluster_x),
                                static_cast<unsigned>(stage.cluster_y),
                                static_cast<unsigned>(stage.cluster_z)}}};
    }
    // A grid has a maximum width; programs loop over the remaining work.
    const driver::LaunchConfig launch_config{
        .grid_x = static_cast<unsigned>(std::min(stage.grid_x, kWidestGrid)),
        .grid_y = static_cast<unsigned>(std::min(stage.grid_y, kTallestGrid)),
        .grid_z = static_cast<unsigned>(stage.grid_z),
        .block_x = static_cast<unsigned>(stage.threads),
        .block_y = static_cast<unsigned>(stage.threads_y),
        .block_z = static_cast<unsigned>(stage.threads_z),
        .shared_bytes = static_cast<unsigned>(stage.shared_bytes),
        .stream = as_stream(stream),
        .attributes = attributes.data(),
        .num_attributes = num_attributes};
    const auto result = driver_.launch_kernel(&launch_config, function, parameters, nullptr);
    if (result == driver::kCudaSuccess) return {};
    Error error = driver_.error(CudaDriver::symbol_of_launch_kernel, result);
    if (result == driver::kCudaErrorCooperativeLaunchTooLarge) {
      error.message += std::format(
          "; the device cannot hold the {} blocks of {} threads of a cooperative grid at once: "
          "make the grid smaller, or let a block take fewer registers and less shared memory",
          stage.programs(), stage.threads * stage.threads_y * stage.threads_z);
    }
    return std::unexpected(std::move(error));
  };
  bool may_be_early = false;  // the first launch follows kernels of others
  for (std::size_t i = 0; i <= shape.later.size(); ++i) {
    const kernels::StageShape& stage = i == 0 ? shape.run : shape.later[i - 1];
    if (stage.programs() == 0) continue;
    DORAJIT_TRY(launch_stage(own.stage(i), stage, may_be_early));
    may_be_early = launches_early_ && own.later_wait();
  }
  return {};
}

bool CudaDevice::is_capturing(Stream stream) {
  const ScopedContext scope(driver_, context_);
  int status = 0;
  const auto result = driver_.stream_is_capturing(as_stream(stream), &status);
  return result == driver::kCudaErrorStreamCaptureImplicit || status != 0;
}

Status CudaDevice::check_pointer(const void* pointer) {
  using enum driver::PointerAttribute;
  static constexpr driver::PointerAttribute kAttributes[] = {kMemoryType, kIsManaged,
                                                             kDeviceOrdinal};
  const ScopedContext scope(driver_, context_);
  unsigned memory_type = 0;  // stays 0 for memory that the driver does not know
  unsigned managed = 0;
  int ordinal = -1;
  void* values[] = {&memory_type, &managed, &ordinal};
  const auto result =
      driver_.pointer_get_attributes(std::size(kAttributes), kAttributes, values, address(pointer));
  if (result != driver::kCudaSuccess && result != driver::kCudaErrorInvalidValue) {
    return std::unexpected(driver_.error("cuPointerGetAttributes", result));
  }
  if (memory_type == 0) {
    if (pageable_access_) return {};
    return fail(StatusCode::kWrongDevice,
                "points to memory that the GPU cannot reach; copy it to the device first");
  }
  if (memory_type == driver::kMemoryTypeHost || managed != 0 || ordinal == info_.ordinal) return {};
  return fail(StatusCode::kWrongDevice,
              std::format("points to memory of CUDA device {}, the call is for device {}; copy it "
                          "there first",
                          ordinal, info_.ordinal));
}

Result<std::unique_ptr<Buffer>> CudaDevice::allocate(std::size_t bytes) {
  const ScopedContext scope(driver_, context_);
  const RelaxedCapture relaxed(driver_);
  DORAJIT_TRY(scope.status());
  CuDevicePtr data = 0;
  DORAJIT_CUDA_TRY(driver_, mem_alloc, &data, std::max<std::size_t>(bytes, 1));
  return std::make_unique<CudaBuffer>(driver_, context_, data, bytes);
}

Result<std::int64_t> CudaDevice::free_memory() {
  const ScopedContext scope(driver_, context_);
  const RelaxedCapture relaxed(driver_);
  DORAJIT_TRY(scope.status());
  std::size_t free = 0;
  std::size_t total = 0;
  DORAJIT_CUDA_TRY(driver_, mem_get_info, &free, &total);
  return static_cast<std::int64_t>(free);
}

Status CudaDevice::upload(void* destination, const void* source, std::size_t bytes) {
  const ScopedContext scope(driver_, context_);
  const RelaxedCapture relaxed(driver_);
  DORAJIT_CUDA_TRY(driver_, memcpy_to_device, address(destination), source, bytes, own_stream_);
  return synchronize(own_stream_);
}

Status CudaDevice::download(void* destination, const void* source, std::size_t bytes) {
  const ScopedContext scope(driver_, context_);
  const RelaxedCapture relaxed(driver_);
  DORAJIT_CUDA_TRY(driver_, memcpy_to_host, destination, address(source), bytes, own_stream_);
  return synchronize(own_stream_);
}

Status CudaDevice::fill(void* destination, int byte, std::size_t bytes) {
  const ScopedContext scope(driver_, context_);
  const RelaxedCapture relaxed(driver_);
  DORAJIT_CUDA_TRY(driver_, memset_bytes, address(destination), static_cast<unsigned char>(byte),
                   bytes, own_stream_);
  return synchronize(own_stream_);
}

Status CudaDevice::copy(void* destination, const void* source, std::size_t bytes, Stream stream) {
  const ScopedContext scope(driver_, context_);
  DORAJIT_CUDA_TRY(driver_, memcpy_on_device, address(destination), address(source), bytes,
                   as_stream(stream));
  return {};
}

Status CudaDevice::synchronize(Stream stream) {
  const ScopedContext scope(driver_, context_);
  DORAJIT_CUDA_TRY(driver_, stream_synchronize, as_stream(stream));
  return {};
}

Result<double> CudaDevice::time_ns(const Enqueue& before, const Enqueue& work) {
  const ScopedContext scope(driver_, context_);
  const RelaxedCapture relaxed(driver_);
  DORAJIT_TRY(scope.status());
  EventPair events(driver_);
  DORAJIT_TRY(events.create());
  DORAJIT_ASSIGN(const CapturedWork captured, CapturedWork::capture(driver_, own_stream_, work));
  DORAJIT_TRY(captured.upload(own_stream_));
  DORAJIT_TRY(before(own_stream_));
  DORAJIT_CUDA_TRY(driver_, event_record, events.start, own_stream_);
  DORAJIT_TRY(captured.launch(own_stream_));
  DORAJIT_CUDA_TRY(driver_, event_record, events.stop, own_stream_);
  DORAJIT_CUDA_TRY(driver_, event_synchronize, events.stop);
  float milliseconds = 0;
  DORAJIT_CUDA_TRY(driver_, event_elapsed_time, &milliseconds, events.start, events.stop);
  return static_cast<double>(milliseconds) * 1e6;
}

}  // namespace dorajit::device
