// What this machine's CPU is.
#pragma once

#include "runtime/device/device.h"

namespace dorajit::device {

DeviceInfo read_cpu_info();

// What this process may still take, as the machine and its container allow.
std::int64_t free_memory_bytes();

}  // namespace dorajit::device
