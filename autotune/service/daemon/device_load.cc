#include "autotune/service/daemon/device_load.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "autotune/service/daemon/nvml.h"

namespace dorajit::autotune {
namespace {

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
