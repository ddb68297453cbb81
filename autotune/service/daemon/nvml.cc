#include "autotune/service/daemon/nvml.h"

#include <array>
#include <utility>

namespace dorajit::autotune {
namespace {

constexpr int kNvmlSuccess = 0;

template <class Function>
bool find(const DynamicLibrary& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(library.symbol(name));
  return function != nullptr;
}

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

}  // namespace dorajit::autotune
