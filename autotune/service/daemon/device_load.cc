#include "autotune/service/daemon/device_load.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/dynamic_library.h"

namespace dorajit::autotune {
namespace {

constexpr int kNvmlSuccess = 0;

struct Gpu {
  std::string name;      // of the model, as CUDA reports it
  std::string uuid;      // as a value of CUDA_VISIBLE_DEVICES
  unsigned percent = 0;  // share of the last sample period in which a kernel ran
};

// NVIDIA's management library, opened at run time: GPU utilization without a CUDA context.
class Nvml {
 public:
  explicit Nvml(const std::string& library) : library_(DynamicLibrary::open(library)) {
    is_up_ = library_ && find("nvmlInit_v2", init_) && find("nvmlShutdown", shutdown_) &&
             find("nvmlDeviceGetCount_v2", count_) &&
             find("nvmlDeviceGetHandleByIndex_v2", device_at_) &&
             find("nvmlDeviceGetName", name_) && find("nvmlDeviceGetUUID", uuid_) &&
             find("nvmlDeviceGetUtilizationRates", utilization_) && init_() == kNvmlSuccess;
  }
  ~Nvml() {
    if (is_up_) shutdown_();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // All GPUs that report their utilization; none without the library or a driver.
  std::vector<Gpu> gpus() {
    unsigned count = 0;
    if (!is_up_ || count_(&count) != kNvmlSuccess) return {};
    std::vector<Gpu> found;
    for (unsigned i = 0; i < count; ++i) {
      Device device = nullptr;
      std::array<char, 96> name{};
      std::array<char, 96> uuid{};
      Rates rates;
      const bool is_known = device_at_(i, &device) == kNvmlSuccess &&
                            name_(device, name.data(), name.size() - 1) == kNvmlSuccess &&
                            uuid_(device, uuid.data(), uuid.size() - 1) == kNvmlSuccess &&
                            utilization_(device, &rates) == kNvmlSuccess;
      if (is_known) found.push_back({name.data(), uuid.data(), rates.gpu});
    }
    return found;
  }

 private:
  // As declared in nvml.h; the library's ABI is stable.
  using Device = void*;
  struct Rates {
    unsigned gpu = 0;
    unsigned memory = 0;
  };

  template <class Function>
  bool find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(library_->symbol(name));
    return function != nullptr;
  }

  Result<DynamicLibrary> library_;
  bool is_up_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_at_)(unsigned, Device*) = nullptr;
  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*uuid_)(Device, char*, unsigned) = nullptr;
  int (*utilization_)(Device, Rates*) = nullptr;
};

constexpr double kBusyShareOfProcessors = 0.5;
constexpr unsigned kBusyPercentOfAGpu = 20;

class MachineLoad final : public DeviceLoad {
 public:
  explicit MachineLoad(std::string nvml_library) : nvml_library_(std::move(nvml_library)) {}

  std::string idlest_gpu(const std::string& fingerprint) override {
    // NVML numbers GPUs differently from CUDA and ignores this variable.
    if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) return {};
    const auto gpus = gpus_of(fingerprint);
    const auto idlest = std::ranges::min_element(gpus, {}, &Gpu::percent);
    return idlest == gpus.end() ? std::string() : idlest->uuid;
  }

  bool is_busy(const std::string& fingerprint, const std::string& gpu) override {
    if (fingerprint.starts_with("cpu/")) return is_cpu_busy();
    return std::ranges::any_of(gpus_of(fingerprint), [&](const Gpu& one) {
      return (gpu.empty() || one.uuid == gpu) && one.percent >= kBusyPercentOfAGpu;
    });
  }

 private:
  static bool is_cpu_busy() {
    double of_a_minute = 0;
    if (::getloadavg(&of_a_minute, 1) != 1) return false;
    const auto processors = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
    return of_a_minute > kBusyShareOfProcessors * processors;
  }

  std::vector<Gpu> gpus_of(const std::string& fingerprint) {
    if (fingerprint.starts_with("cpu/")) return {};
    if (!nvml_) nvml_.emplace(nvml_library_);
    auto gpus = nvml_->gpus();
    std::erase_if(gpus,
                  [&](const Gpu& gpu) { return !fingerprint.contains("/" + gpu.name + "/"); });
    return gpus;
  }

  const std::string nvml_library_;
  std::optional<Nvml> nvml_;
};

}  // namespace

std::unique_ptr<DeviceLoad> DeviceLoad::of_this_machine(const std::string& nvml_library) {
  return std::make_unique<MachineLoad>(nvml_library);
}

}  // namespace dorajit::autotune
