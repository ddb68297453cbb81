// What this machine's CPU is.
#pragma once

#include "runtime/device/device.h"

namespace dorajit::device {

DeviceInfo read_cpu_info();

}  // namespace dorajit::device
