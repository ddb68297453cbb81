// What this machine's CPU is.
#pragma once

#include "runtime/device/device.h"

namespace dorajit::device {

// With at most `most_threads` processors; 0 for all that this process may use, up to 64.
DeviceInfo read_cpu_info(int most_threads);

// What this process may still take, as the machine and its container allow.
std::int64_t free_memory_bytes();

}  // namespace dorajit::device
