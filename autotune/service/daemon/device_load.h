// Whether other processes use a device, and which of several devices is used least.
#pragma once

#include <memory>
#include <string>

namespace dorajit::autotune {

class DeviceLoad {
 public:
  virtual ~DeviceLoad() = default;

  // The least used GPU with that fingerprint, as a value of CUDA_VISIBLE_DEVICES. Empty if it is
  // unknown, or if CUDA_VISIBLE_DEVICES was set when the daemon started.
  virtual std::string idlest_gpu(const std::string& fingerprint) = 0;

  // `gpu` as above; empty: any GPU with the fingerprint. False if it is unknown. Call while no
  // worker of the daemon has a job there.
  virtual bool is_busy(const std::string& fingerprint, const std::string& gpu) = 0;

  // For a CPU the load average; for a GPU NVML, which is opened on first use.
  static std::unique_ptr<DeviceLoad> of_this_machine(
      const std::string& nvml_library = "libnvidia-ml.so.1");
};

}  // namespace dorajit::autotune
