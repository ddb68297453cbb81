// The device that a command works on, and the targets that --arch names.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/settings.h"
#include "runtime/compile/compiler.h"
#include "runtime/engine.h"

namespace dorajit::cli {

struct ChosenDevice {
  launch::DeviceId id;
  device::Device* device = nullptr;  // the engine's
};

// "cpu", "cuda:1"
std::string device_text(const launch::DeviceId& id);

// Nothing for empty text; "cuda" is CUDA device 0; kInvalidArgument for anything else that
// device_text() does not write.
Result<std::optional<launch::DeviceId>> parse_device(std::string_view text);

// Opens the device that `text` names. Without one: CUDA device 0 if there is a driver and a GPU,
// else the CPU. kNoDriver when the device is not there.
Result<ChosenDevice> choose_device(Engine& engine, std::string_view text);

// Why there is no CUDA device, in one line; empty when there is one.
std::string why_no_cuda_device();

// Which records --device selects by the fingerprint of their device: "cpu", "cuda" and "cuda:N"
// select those of that device of this machine, other text those whose fingerprint contains it, and
// empty text all. kNoDriver when the device is not there.
using DeviceFilter = std::function<bool(std::string_view fingerprint)>;
Result<DeviceFilter> device_filter(const Settings& settings, std::string_view text);

// kInvalidArgument for an architecture that never existed, whatever is installed.
Status check_arch(const std::string& arch);

// The target that a process on such a device asks artifacts for, which has no suffix: that of sm_90
// for "sm_90a", which a note says. kInvalidArgument for an architecture that never existed;
// kNoCompiler where there is no compiler or it does not support the architecture any more.
Result<compile::Target> make_target(Engine& engine, const std::string& arch);

// "native-cpu", "sm_90"
std::string arch_text(const compile::Target& target);

}  // namespace dorajit::cli
