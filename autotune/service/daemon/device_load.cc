#include "autotune/service/daemon/device_load.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

namespace dorajit::autotune {
namespace {

constexpr int kNvmlSuccess = 0;

template <class Function>
bool find(const DynamicLibrary& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(library.symbol(name));
  return function != nullptr;
}

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

Nvml::Nvml(DynamicLibrary library) : library_(std::move(library)) {}

Nvml::~Nvml() {
  if (is_up_) shutdown_();
}

std::unique_ptr<Nvml> Nvml::open(const std::string& library) {
  auto opened = DynamicLibrary::open(library);
  if (!opened) return nullptr;
  std::unique_ptr<Nvml> nvml(new Nvml(*std::move(opened)));
  return nvml->start() ? std::move(nvml) : nullptr;
}

bool Nvml::start() {
  const bool is_complete =
      find(library_, "nvmlInit_v2", init_) && find(library_, "nvmlShutdown", shutdown_) &&
      find(library_, "nvmlDeviceGetCount_v2", count_) &&
      find(library_, "nvmlDeviceGetHandleByIndex_v2", device_at_) &&
      find(library_, "nvmlDeviceGetName", name_) && find(library_, "nvmlDeviceGetUUID", uuid_) &&
      find(library_, "nvmlDeviceGetUtilizationRates", utilization_);
  is_up_ = is_complete && init_() == kNvmlSuccess;
  return is_up_;
}

std::vector<Nvml::Utilization> Nvml::utilizations() {
  unsigned count = 0;
  if (count_(&count) != kNvmlSuccess) return {};
  std::vector<Utilization> found;
  for (unsigned i = 0; i < count; ++i) {
    if (auto one = utilization_of(i)) found.push_back(*std::move(one));
  }
  return found;
}

std::optional<Nvml::Utilization> Nvml::utilization_of(unsigned index) const {
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

std::unique_ptr<DeviceLoad> DeviceLoad::of_this_machine(const std::string& nvml_library) {
  return std::make_unique<MachineLoad>(nvml_library);
}

}  // namespace dorajit::autotune
