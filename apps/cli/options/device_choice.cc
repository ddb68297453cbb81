#include "apps/cli/options/device_choice.h"

#include <charconv>
#include <format>

#include "autotune/engine_factory.h"
#include "cache/records/device_models.h"
#include "runtime/device/cuda/cuda_device.h"

namespace dorajit::cli {

using kernels::DeviceKind;
using launch::DeviceId;

std::string device_text(const DeviceId& id) {
  return id.kind == DeviceKind::kCpu ? "cpu" : std::format("cuda:{}", id.ordinal);
}

Result<std::optional<DeviceId>> parse_device(std::string_view text) {
  constexpr std::string_view kCudaPrefix = "cuda:";
  if (text.empty()) return std::nullopt;
  if (text == "cpu") return DeviceId{.kind = DeviceKind::kCpu, .ordinal = 0};
  if (text == "cuda") return DeviceId{.kind = DeviceKind::kCuda, .ordinal = 0};
  if (text.starts_with(kCudaPrefix)) {
    const std::string_view digits = text.substr(kCudaPrefix.size());
    int ordinal = -1;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
    if (error == std::errc{} && end == digits.data() + digits.size() && ordinal >= 0) {
      return DeviceId{.kind = DeviceKind::kCuda, .ordinal = ordinal};
    }
  }
  return fail(StatusCode::kInvalidArgument,
              std::format("--device {} is none of: cpu, cuda, cuda:N", text));
}

Result<ChosenDevice> choose_device(Engine& engine, std::string_view text) {
  DORAJIT_ASSIGN(const std::optional<DeviceId> asked, parse_device(text));
  DeviceId id;
  if (asked) {
    id = *asked;
  } else if (engine.cuda_device_count() > 0) {
    id.kind = DeviceKind::kCuda;
  }
  if (id.kind == DeviceKind::kCuda) {
    DORAJIT_ASSIGN(const int count, device::CudaDevice::count());
    if (id.ordinal >= count) {
      return fail(
          StatusCode::kNoDriver,
          std::format("there is no {}: the driver shows {} CUDA device(s); `dorajit doctor` "
                      "lists them",
                      device_text(id), count));
    }
  }
  DORAJIT_ASSIGN(device::Device * device, engine.device(id));
  return ChosenDevice{.id = id, .device = device};
}

std::string why_no_cuda_device() {
  const Result<int> count = device::CudaDevice::count();
  if (!count) return count.error().message;
  return *count > 0 ? "" : "the NVIDIA driver is installed but shows no GPU";
}

Result<DeviceFilter> device_filter(const Settings& settings, std::string_view text) {
  if (text.empty() || !parse_device(text)) {
    return [part = std::string(text)](std::string_view fingerprint) {
      return fingerprint.contains(part);
    };
  }
  const auto parts = autotune::make_engine(settings);
  DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(*parts.engine, text));
  return [own = chosen.device->info().fingerprint](std::string_view fingerprint) {
    return cache::is_same_model(fingerprint, own);
  };
}

}  // namespace dorajit::cli
