// Whether somebody else is using a device.
#pragma once

#include <memory>
#include <string>

namespace dorajit::autotune {

class DeviceLoad {
 public:
  virtual ~DeviceLoad() = default;

  // False also where it cannot be told. Asked while no worker of the daemon has work there.
  virtual bool is_busy(const std::string& fingerprint) = 0;

  // A CPU by the load average, a GPU by NVML, which is opened when it is first needed.
  static std::unique_ptr<DeviceLoad> of_this_machine(
      const std::string& nvml_library = "libnvidia-ml.so.1");
};

}  // namespace dorajit::autotune
