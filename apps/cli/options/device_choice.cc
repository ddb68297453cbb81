#include "apps/cli/options/device_choice.h"

#include <algorithm>
#include <charconv>
#include <format>
#include <vector>

#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/table.h"
#include "autotune/engine_factory.h"
#include "cache/records/tuning_records.h"
#include "runtime/device/cuda/cuda_device.h"

namespace dorajit::cli {
namespace {

using compile::cuda_arch_number;
using kernels::DeviceKind;

constexpr std::string_view kNativeCpu = "native-cpu";

// All architectures below kOldestCurrentArch. For each of them some release of NVRTC makes code.
constexpr int kFormerArchs[] = {10, 11, 12, 13, 20, 21, 30, 32, 35, 37,
                                50, 52, 53, 60, 61, 62, 70, 72, 75};
constexpr int kOldestCurrentArch = 80;

// `nvrtc` may be null; one that cannot be opened is not asked which architectures it knows.
Status check_exists(compile::NvrtcCompiler* nvrtc, const std::string& arch) {
  const auto number = cuda_arch_number(arch);
  if (!number) {
    return fail(StatusCode::kInvalidArgument,
                std::format("--arch {}: unknown architecture; examples: sm_80, sm_90a, {}", arch,
                            kNativeCpu));
  }
  if (*number >= kOldestCurrentArch || std::ranges::contains(kFormerArchs, *number)) return {};
  std::string examples = "examples: sm_80, sm_90a";
  if (nvrtc != nullptr) {
    const auto known = nvrtc->supported_archs();
    const auto identity = nvrtc->identity();
    if (known && identity) examples = std::format("{} knows {}", *identity, joined(*known));
  }
  return fail(StatusCode::kInvalidArgument,
              std::format("--arch {}: there is no such architecture; {}", arch, examples));
}

// An architecture that is newer than the library's newest is served with PTX, an older one not at
// all.
Status check_supported(compile::NvrtcCompiler& nvrtc, const compile::Target& target) {
  DORAJIT_ASSIGN(const std::string identity, nvrtc.identity());
  DORAJIT_ASSIGN(const std::vector<std::string> known, nvrtc.supported_archs());
  if (std::ranges::contains(known, target.arch)) return {};
  const int number = cuda_arch_number(target.arch).value_or(0);
  const auto [oldest, newest] = std::ranges::minmax(
      known, {}, [](const std::string& one) { return cuda_arch_number(one).value_or(0); });
  if (number < cuda_arch_number(oldest)) {
    return fail(StatusCode::kNoCompiler,
                std::format("{} does not support {} any more, only {}; set DORAJIT_NVRTC to an "
                            "older release",
                            identity, target.arch, joined(known)));
  }
  if (number < cuda_arch_number(newest)) {
    return fail(StatusCode::kInvalidArgument,
                std::format("--arch {}: there is no such architecture; {} knows {}", target.arch,
                            identity, joined(known)));
  }
  print_note(std::format("{} does not know {}, only {}: PTX is made, which the driver translates",
                         identity, target.arch, joined(known)));
  return {};
}

}  // namespace

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

Status check_arch(const std::string& arch) {
  return arch == kNativeCpu ? Status() : check_exists(nullptr, arch);
}

Result<compile::Target> make_target(Engine& engine, const std::string& arch) {
  if (arch == kNativeCpu) {
    DORAJIT_TRY(engine.kernels().host_compiler().identity());
    DORAJIT_ASSIGN(const device::Device* cpu, engine.device({}));
    return cpu->info().target;
  }
  compile::NvrtcCompiler& nvrtc = engine.kernels().nvrtc();
  DORAJIT_TRY(check_exists(&nvrtc, arch));
  const int number = *cuda_arch_number(arch);
  compile::Target target = compile::cuda_target(number / 10, number % 10);
  if (target.arch != arch) {
    print_note(
        std::format("{}: kernels are compiled for {}, which a process on such a GPU asks for", arch,
                    target.arch));
  }
  DORAJIT_TRY(check_supported(nvrtc, target));
  return target;
}

std::string arch_text(const compile::Target& target) {
  return target.kind == DeviceKind::kCpu ? std::string(kNativeCpu) : target.arch;
}

}  // namespace dorajit::cli
