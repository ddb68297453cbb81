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

// NVIDIA's management library, opened at run time: GPU utilization without a CUDA context.
class Nvml {
 public:
  struct Utilization {
    std::string name;      // of the model, as CUDA reports it
    std::string uuid;      // as a value of CUDA_VISIBLE_DEVICES
    unsigned percent = 0;  // share of the last sample period in which a kernel ran
  };

  // Null if there is no such library or it finds no driver.
  static std::unique_ptr<Nvml> open(const std::string& library) {
    auto opened = DynamicLibrary::open(library);
    if (!opened) return nullptr;
    std::unique_ptr<Nvml> nvml(new Nvml(*std::move(opened)));
    return nvml->is_up_ ? std::move(nvml) : nullptr;
  }
  ~Nvml() {
    if (is_up_) shutdown_();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // The utilization of all GPUs that report it.
  std::vector<Utilization> utilizations() {
    unsigned count = 0;
    if (count_(&count) != kNvmlSuccess) return {};
    std::vector<Utilization> found;
    for (unsigned i = 0; i < count; ++i) {
      if (auto one = utilization_of(i)) found.push_back(*std::move(one));
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

  explicit Nvml(DynamicLibrary library) : library_(std::move(library)) {
    is_up_ = find("nvmlInit_v2", init_) && find("nvmlShutdown", shutdown_) &&
             find("nvmlDeviceGetCount_v2", count_) &&
             find("nvmlDeviceGetHandleByIndex_v2", device_at_) &&
             find("nvmlDeviceGetName", name_) && find("nvmlDeviceGetUUID", uuid_) &&
             find("nvmlDeviceGetUtilizationRates", utilization_) && init_() == kNvmlSuccess;
  }

  template <class Function>
  bool find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(library_.symbol(name));
    return function != nullptr;
  }

  std::optional<Utilization> utilization_of(unsigned index) const {
    Device device = nullptr;
    std::array<char, 96> name{};
    std::array<char, 96> uuid{};
    Rates rates;
    const bool is_known = device_at_(index, &device) == kNvmlSuccess &&
                          name_(device, name.data(), name.size() - 1) == kNvmlSuccess &&
                          uuid_(device, uuid.data(), uuid.size() - 1) == kNvmlSuccess &&
                          utilization_(device, &rates) == kNvmlSuccess;
    if (!is_known) return std::nullopt;
    return Utilization{.name = name.data(), .uuid = uuid.data(), .percent = rates.gpu};
  }

  DynamicLibrary library_;
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
    const auto idlest = std::ranges::min_element(gpus, {}, &Nvml::Utilization::percent);
    return idlest == gpus.end() ? std::string() : idlest->uuid;
  }

  bool is_busy(const std::string& fingerprint, const std::string& gpu) override {
    if (fingerprint.starts_with("cpu/")) return is_cpu_busy();
    return std::ranges::any_of(gpus_of(fingerprint), [&](const Nvml::Utilization& one) {
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

  std::vector<Nvml::Utilization> gpus_of(const std::string& fingerprint) {
    if (fingerprint.starts_with("cpu/")) return {};
    if (!was_nvml_opened_) nvml_ = Nvml::open(nvml_library_);
    was_nvml_opened_ = true;
    if (nvml_ == nullptr) return {};
    auto gpus = nvml_->utilizations();
    std::erase_if(gpus, [&](const Nvml::Utilization& gpu) {
      return !fingerprint.contains("/" + gpu.name + "/");
    });
    return gpus;
  }

  const std::string nvml_library_;
  std::unique_ptr<Nvml> nvml_;
  bool was_nvml_opened_ = false;
};

}  // namespace

std::unique_ptr<DeviceLoad> DeviceLoad::of_this_machine(const std::string& nvml_library) {
  return std::make_unique<MachineLoad>(nvml_library);
}

}  // namespace dorajit::autotune
