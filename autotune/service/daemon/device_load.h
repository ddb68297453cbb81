// Whether somebody else is using a device, and which of several is used least.
#pragma once

#include <memory>
#include <string>

namespace dorajit::autotune {

class DeviceLoad {
 public:
  virtual ~DeviceLoad() = default;

  // Of the GPUs with that fingerprint the one that is used least, as CUDA_VISIBLE_DEVICES takes it.
  // Empty where it cannot be told, and where whoever started the daemon has chosen.
  virtual std::string idlest_gpu(const std::string& fingerprint) = 0;

  // `gpu` is as above; empty: any of those with the fingerprint. False also where it cannot be
  // told. Asked while no worker of the daemon has work there.
  virtual bool is_busy(const std::string& fingerprint, const std::string& gpu) = 0;

  // A CPU by the load average, a GPU by NVML, which is opened when it is first needed.
  static std::unique_ptr<DeviceLoad> of_this_machine(
      const std::string& nvml_library = "libnvidia-ml.so.1");
};

}  // namespace dorajit::autotune
