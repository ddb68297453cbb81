#include "runtime/device/cpu/cpu_device.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <format>
#include <utility>

#include "runtime/base/dynamic_library.h"
#include "runtime/device/cpu/cpu_info.h"

namespace dorajit::device {
namespace {

class CpuKernel final : public LoadedKernel {
 public:
  explicit CpuKernel(kernels::CpuFunction function) : function_(function) {}
  CpuKernel(DynamicLibrary library, kernels::CpuFunction function)
      : library_(std::move(library)), function_(function) {}

  [[nodiscard]] kernels::CpuFunction function() const { return function_; }

 private:
  std::optional<DynamicLibrary> library_;
  kernels::CpuFunction function_;
};

constexpr std::size_t kAlignment = 4096;
constexpr double kGrainElements = 32768;  // what another worker must have to do to be worth waking
constexpr std::size_t kSerialCopyBytes = 256
                                         << 10;  // below, waking workers costs more than it saves

class CpuBuffer final : public Buffer {
 public:
  CpuBuffer(std::byte* data, std::size_t size) : Buffer(data, size) {}
  ~CpuBuffer() override { std::free(data()); }
};

// A range of work for each worker, cut evenly.
struct Share {
  long long first;
  long long last;
};

Share share_of(long long total, int workers, int worker) {
  return {total / workers * worker + std::min<long long>(total % workers, worker),
          total / workers * (worker + 1) + std::min<long long>(total % workers, worker + 1)};
}

struct KernelJob {
  kernels::CpuFunction function;
  const kernels::KernelArguments* arguments;
  long long programs;
  int workers;
};

struct CopyJob {
  std::byte* destination;
  const std::byte* source;
  std::size_t bytes;
  int workers;
};

}  // namespace

CpuDevice::CpuDevice() : info_(read_cpu_info()), pool_(info_.traits.processors) {}

std::shared_ptr<const LoadedKernel> CpuDevice::wrap(kernels::CpuFunction function) {
  return std::make_shared<CpuKernel>(function);
}

Result<std::shared_ptr<const LoadedKernel>> CpuDevice::load(const Artifact& artifact) {
  auto library = DynamicLibrary::open_memory(artifact.code, "dorajit_kernel");
  if (!library) {
    return fail(StatusCode::kDriverError,
                std::format("cannot load a compiled CPU kernel: {}", library.error().message));
  }
  auto* function = reinterpret_cast<kernels::CpuFunction>(library->symbol("dorajit_kernel"));
  if (function == nullptr) {
    return fail(StatusCode::kDriverError, "a compiled CPU kernel has no dorajit_kernel");
  }
  return std::make_shared<CpuKernel>(*std::move(library), function);
}

Status CpuDevice::launch(const LoadedKernel& kernel, const kernels::Config& config,
                         const kernels::KernelArguments& arguments, Stream) {
  const auto function = static_cast<const CpuKernel&>(kernel).function();
  const long long column_blocks = (arguments.num_cols - 1) / config.block_size + 1;
  const long long row_blocks = (arguments.num_rows - 1) / config.rows_per_program + 1;
  const long long programs = column_blocks * row_blocks;
  const double elements =
      static_cast<double>(arguments.num_rows) * static_cast<double>(arguments.num_cols);
  const auto grains = static_cast<long long>(elements / kGrainElements) + 1;
  const long long workers =
      std::min({static_cast<long long>(std::max(config.num_warps, 1)), programs, grains});
  KernelJob job{.function = function,
                .arguments = &arguments,
                .programs = programs,
                .workers = static_cast<int>(workers)};
  pool_.run(
      job.workers,
      [](void* context, int worker) {
        const auto& job = *static_cast<const KernelJob*>(context);
        const Share share = share_of(job.programs, job.workers, worker);
        job.function(job.arguments, share.first, share.last);
      },
      &job);
  return {};
}

Status CpuDevice::check_pointer(const void*) { return {}; }

Result<std::unique_ptr<Buffer>> CpuDevice::allocate(std::size_t bytes) {
  const std::size_t rounded =
      (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  if (data == nullptr) {
    return fail(StatusCode::kOutOfMemory,
                std::format("cannot allocate {} bytes on the CPU", bytes));
  }
  return std::make_unique<CpuBuffer>(data, bytes);
}

Result<std::int64_t> CpuDevice::free_memory() { return free_memory_bytes(); }

Status CpuDevice::upload(void* destination, const void* source, std::size_t bytes) {
  std::memcpy(destination, source, bytes);
  return {};
}

Status CpuDevice::download(void* destination, const void* source, std::size_t bytes) {
  std::memcpy(destination, source, bytes);
  return {};
}

Status CpuDevice::fill(void* destination, int byte, std::size_t bytes) {
  std::memset(destination, byte, bytes);
  return {};
}

Status CpuDevice::copy(void* destination, const void* source, std::size_t bytes, Stream) {
  CopyJob job{.destination = static_cast<std::byte*>(destination),
              .source = static_cast<const std::byte*>(source),
              .bytes = bytes,
              .workers = bytes < kSerialCopyBytes ? 1 : pool_.max_workers()};
  pool_.run(
      job.workers,
      [](void* context, int worker) {
        const auto& job = *static_cast<const CopyJob*>(context);
        const Share share = share_of(static_cast<long long>(job.bytes), job.workers, worker);
        std::memcpy(job.destination + share.first, job.source + share.first,
                    static_cast<std::size_t>(share.last - share.first));
      },
      &job);
  return {};
}

Result<double> CpuDevice::time_ns(const std::function<Status(Stream)>& work) {
  const auto start = std::chrono::steady_clock::now();
  DORAJIT_TRY(work(nullptr));
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace dorajit::device
