// The device that a command works on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/engine.h"

namespace dorajit::cli {

struct ChosenDevice {
  launch::DeviceId id;
  device::Device* device = nullptr;  // the engine's
};

// "cpu", "cuda:1"
std::string device_text(const launch::DeviceId& id);

// Nothing for empty text; kInvalidArgument for what device_text() does not write ("cuda" is CUDA
// device 0).
Result<std::optional<launch::DeviceId>> parse_device(std::string_view text);

// Opens the device that `text` names. Without one: CUDA device 0 if there is a driver and a GPU,
// else the CPU. kNoDriver when the device is not there.
Result<ChosenDevice> choose_device(Engine& engine, std::string_view text);

// Why there is no CUDA device, in one line; empty when there is one.
std::string why_no_cuda_device();

// The fingerprint of the device that --device names; empty where it names none, so that all are
// meant.
Result<std::string> fingerprint_asked_for(Engine& engine, std::string_view device);

}  // namespace dorajit::cli
