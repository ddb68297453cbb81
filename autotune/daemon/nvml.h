// NVIDIA's management library, opened at run time: what GPUs are doing, without a CUDA context.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace dorajit::autotune {

class Nvml {
 public:
  struct Utilization {
    std::string name;      // of the model, as CUDA has it
    std::string uuid;      // as CUDA_VISIBLE_DEVICES takes it
    unsigned percent = 0;  // of the last moment in which a kernel ran
  };

  virtual ~Nvml() = default;
  // Of all GPUs that tell.
  virtual std::vector<Utilization> utilizations() = 0;

  // Null where there is no such library or it finds no driver.
  static std::unique_ptr<Nvml> open(const std::string& library);
};

}  // namespace dorajit::autotune
