// Whether other processes use a device, and which of several devices is used least.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/dynamic_library.h"

namespace dorajit::autotune {

// NVIDIA's management library, opened at run time: GPU utilization without a CUDA context.
class Nvml {
 public:
  struct Utilization {
    std::string name;      // of the model, as CUDA reports it
    std::string uuid;      // as a value of CUDA_VISIBLE_DEVICES
    unsigned percent = 0;  // share of the last sample period in which a kernel ran
  };

  // Null if there is no such library or it finds no driver.
  static std::unique_ptr<Nvml> open(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // The utilization of all GPUs that report it.
  std::vector<Utilization> utilizations();

 private:
  // As declared in nvml.h; the library's ABI is stable.
  using Device = void*;
  struct Rates {
    unsigned gpu = 0;
    unsigned memory = 0;
  };

  explicit Nvml(DynamicLibrary library);
  bool start();
  std::optional<Utilization> utilization_of(unsigned index) const;

  DynamicLibrary library_;
  bool is_up_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_at_)(unsigned, Device*) = nullptr;
  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*uuid_)(Device, char*, unsigned) = nullptr;
  int (*utilization_)(Device, Rates*) = nullptr;
};

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
