// Properties of this machine's CPU.
#pragma once

#include "runtime/device/device.h"

namespace dorajit::device {

// With at most `max_threads` processors; 0: all that this process may use, up to 64.
DeviceInfo read_cpu_info(int max_threads);

// Memory that this process may still allocate, within the limits of the machine and its container.
std::int64_t free_memory_bytes();

}  // namespace dorajit::device
