#include "runtime/device/cpu/cpu_device.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <format>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "kernel_templates/template.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/hash.h"

namespace dorajit::device {
namespace {

// The first value of a field in /proc/cpuinfo.
std::string cpuinfo_field(std::string_view field) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(field)) continue;
    const std::size_t colon = line.find(": ");
    return colon == std::string::npos ? std::string() : line.substr(colon + 2);
  }
  return {};
}

// The CPU quota of the container, in processors, or `otherwise` if there is none: "200000 100000"
// is two.
int quota_processors(int otherwise) {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (!(file >> quota >> period) || period <= 0) return otherwise;
  return static_cast<int>(std::ceil(quota / period));
}

// The threads that this process may use, within the limits of containers and job schedulers.
int usable_processors() {
  int processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) processors = CPU_COUNT(&set);
  return std::max(1, std::min(processors, quota_processors(processors)));
}

// The largest cache of the first processor. In some virtual machines sysconf() reports the host's.
std::int64_t last_level_cache_bytes() {
  std::int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(std::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    std::int64_t kibibytes = 0;
    if (file >> kibibytes) largest = std::max(largest, kibibytes * 1024);
  }
  return largest;
}

constexpr int kMaxWorkers = 64;  // fewer threads already saturate the memory bandwidth
constexpr std::int64_t kAssumedCacheBytes = 32LL << 20;

// Memory that this process may still allocate, within the limits of the machine and its container.
std::int64_t free_memory_bytes() {
  const std::int64_t free =
      static_cast<std::int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");
  std::ifstream used_file("/sys/fs/cgroup/memory.current");
  std::int64_t limit = 0;
  std::int64_t used = 0;
  if (!(limit_file >> limit) || !(used_file >> used)) return free;
  return std::clamp<std::int64_t>(limit - used, 0, free);
}

// With at most `max_threads` processors; 0: all that this process may use, up to 64.
DeviceInfo read_cpu_info(int max_threads) {
  DeviceInfo info;
  info.name = cpuinfo_field("model name");
  if (info.name.empty()) info.name = "CPU";
  const int wanted = max_threads > 0 ? std::min(max_threads, kMaxWorkers) : kMaxWorkers;
  const int processors = std::min(usable_processors(), wanted);
  info.traits = {.kind = kernels::DeviceKind::kCpu, .processors = processors};
  utsname system{};
  const bool named = uname(&system) == 0;
  info.driver_version = named ? system.release : "unknown";
  // Model and stepping identify the target of "native"; the flags show what the kernel enables. The
  // fields differ by architecture: first those of x86, then those of Arm.
  std::string identity = named ? system.machine : "";
  for (const char* field :
       {"vendor_id", "cpu family", "model\t", "stepping", "flags", "CPU implementer",
        "CPU architecture", "CPU variant", "CPU part", "Features"}) {
    identity.append("|").append(cpuinfo_field(field));
  }
  const std::string isa = hash_hex(identity).substr(0, 12);
  info.fingerprint = std::format("cpu/{}/{}/{} threads", info.name, isa, processors);
  info.target = {.kind = kernels::DeviceKind::kCpu,
                 .arch = std::format("native {} {}", info.name, isa)};
  const std::int64_t cache = last_level_cache_bytes();
  info.cache_bytes = cache > 0 ? cache : kAssumedCacheBytes;
  info.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return info;
}

// The function that a compiled kernel exports: runs programs [first, last) of a stage.
using CompiledFunction = void (*)(const kernels::KernelArguments* arguments, long long first,
                                  long long last);

// Runs a range of programs of a stage. Calling it allocates nothing.
using RangeFunction =
    std::function<void(const kernels::Variant& variant, const kernels::KernelArguments& arguments,
                       long long first, long long last)>;

RangeFunction range_of(CompiledFunction compiled) {
  return [compiled](const kernels::Variant&, const kernels::KernelArguments& arguments,
                    long long first, long long last) { compiled(&arguments, first, last); };
}

class CpuKernel final : public LoadedKernel {
 public:
  CpuKernel(const kernels::Variant& variant, const kernels::BuiltinKernel& builtin)
      : LoadedKernel(variant), run_(builtin.run), finish_(builtin.finish) {}
  CpuKernel(const kernels::Variant& variant, DynamicLibrary library, CompiledFunction run,
            CompiledFunction finish)
      : LoadedKernel(variant),
        library_(std::move(library)),
        run_(range_of(run)),
        finish_(range_of(finish)) {}

  [[nodiscard]] const RangeFunction& run() const { return run_; }
  [[nodiscard]] const RangeFunction& finish() const { return finish_; }

 private:
  std::optional<DynamicLibrary> library_;
  RangeFunction run_;
  RangeFunction finish_;
};

constexpr std::size_t kAlignment = 4096;
constexpr double kGrainElements = 32768;  // minimum work per worker that justifies waking it
// Below this size, waking workers costs more than it saves.
constexpr std::size_t kSerialCopyBytes = 256 << 10;

class CpuBuffer final : public Buffer {
 public:
  CpuBuffer(std::byte* data, std::size_t size) : Buffer(data, size) {}
  ~CpuBuffer() override { std::free(data()); }
};

// Calls body(first, last) on each worker for its even share of [0, total).
template <class Body>
void run_shares(ThreadPool& pool, int workers, long long total, const Body& body) {
  struct Shares {
    [[nodiscard]] long long first_of(int worker) const {
      return total / workers * worker + std::min<long long>(total % workers, worker);
    }

    const Body& body;
    long long total;
    int workers;
  } shares{.body = body, .total = total, .workers = workers};
  pool.run(
      workers,
      [](void* context, int worker) {
        const auto& all = *static_cast<const Shares*>(context);
        all.body(all.first_of(worker), all.first_of(worker + 1));
      },
      &shares);
}

}  // namespace

CpuDevice::CpuDevice(int max_threads)
    : info_(read_cpu_info(max_threads)), pool_(info_.traits.processors) {}

std::shared_ptr<const LoadedKernel> CpuDevice::builtin(const kernels::Variant& variant) {
  const kernels::BuiltinKernel kernel = kernels::builtin_cpu_kernel(variant);
  if (kernel.run == nullptr) return nullptr;
  return std::make_shared<CpuKernel>(variant, kernel);
}

Result<std::shared_ptr<const LoadedKernel>> CpuDevice::load(const Artifact& artifact,
                                                            const kernels::Variant& variant) {
  auto library = DynamicLibrary::open_memory(artifact.code, "dorajit_kernel");
  if (!library) {
    return fail(StatusCode::kDriverError,
                std::format("cannot load a compiled CPU kernel: {}", library.error().message));
  }
  auto* run = reinterpret_cast<CompiledFunction>(library->symbol("dorajit_kernel"));
  auto* finish = reinterpret_cast<CompiledFunction>(library->symbol("dorajit_finish"));
  if (run == nullptr || (kernels::template_of(variant).stages != nullptr && finish == nullptr)) {
    return fail(StatusCode::kDriverError,
                std::format("a compiled CPU kernel has no {}; please report this",
                            run == nullptr ? "dorajit_kernel" : "dorajit_finish"));
  }
  return std::make_shared<CpuKernel>(variant, *std::move(library), run, finish);
}

Status CpuDevice::launch(const LoadedKernel& kernel, const kernels::Config& config,
                         const kernels::LaunchArguments& arguments, Stream) {
  const auto& own = static_cast<const CpuKernel&>(kernel);
  const kernels::LaunchShape shape =
      kernels::launch_shape(own.variant(), config, arguments, info_.traits.processors);
  const auto grains = static_cast<long long>(shape.work / kGrainElements) + 1;
  const auto run_stage = [&](const RangeFunction& function, long long programs) {
    if (programs == 0) return;
    const long long wanted = std::max(config[kernels::kWarps], 1);
    run_shares(
        pool_, static_cast<int>(std::min({wanted, programs, grains})), programs,
        [&](long long first, long long last) { function(own.variant(), arguments, first, last); });
  };
  run_stage(own.run(), shape.run.programs());
  run_stage(own.finish(), shape.later.front().programs());
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
  const int workers = bytes < kSerialCopyBytes ? 1 : pool_.max_workers();
  run_shares(pool_, workers, static_cast<long long>(bytes), [&](long long first, long long last) {
    std::memcpy(static_cast<std::byte*>(destination) + first,
                static_cast<const std::byte*>(source) + first,
                static_cast<std::size_t>(last - first));
  });
  return {};
}

Result<double> CpuDevice::time_ns(const Enqueue& before, const Enqueue& work) {
  DORAJIT_TRY(before(nullptr));
  const auto start = std::chrono::steady_clock::now();
  DORAJIT_TRY(work(nullptr));
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace dorajit::device
