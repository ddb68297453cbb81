// NVIDIA's management library, opened at run time: what GPUs are doing, without a CUDA context.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/dynamic_library.h"

namespace dorajit::autotune {

class Nvml {
 public:
  struct Utilization {
    std::string name;      // of the model, as CUDA has it
    std::string uuid;      // as CUDA_VISIBLE_DEVICES takes it
    unsigned percent = 0;  // of the last moment in which a kernel ran
  };

  // Null where there is no such library or it finds no driver.
  static std::unique_ptr<Nvml> open(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Of all GPUs that tell.
  std::vector<Utilization> utilizations();

 private:
  // As nvml.h has them; the library keeps its ABI.
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

}  // namespace dorajit::autotune
