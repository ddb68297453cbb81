#include "autotune/daemon/device_load.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "autotune/daemon/nvml.h"

namespace dorajit::autotune {
namespace {

constexpr double kBusyShareOfProcessors = 0.5;
constexpr unsigned kBusyPercentOfAGpu = 20;

class MachineLoad final : public DeviceLoad {
 public:
  explicit MachineLoad(std::string nvml_library) : nvml_library_(std::move(nvml_library)) {}

  bool is_busy(const std::string& fingerprint) override {
    return fingerprint.starts_with("cpu/") ? is_cpu_busy() : is_gpu_busy(fingerprint);
  }

 private:
  static bool is_cpu_busy() {
    double of_a_minute = 0;
    if (::getloadavg(&of_a_minute, 1) != 1) return false;
    const auto processors = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
    return of_a_minute > kBusyShareOfProcessors * processors;
  }

  // A worker takes any GPU of the model, so all of them should be idle.
  bool is_gpu_busy(const std::string& fingerprint) {
    if (!was_nvml_opened_) nvml_ = Nvml::open(nvml_library_);
    was_nvml_opened_ = true;
    if (nvml_ == nullptr) return false;
    return std::ranges::any_of(nvml_->utilizations(), [&](const Nvml::Utilization& gpu) {
      return fingerprint.contains("/" + gpu.name + "/") && gpu.percent >= kBusyPercentOfAGpu;
    });
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
