// What the stand-in for NVML tells of its two H200s, GPU-1 and GPU-4, while an object lives.
#pragma once

#include <stdlib.h>

#include <string>

#include "tests/fakes/scoped_environment.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::tests {

class GpusInUse {
 public:
  // As in "93 3".
  explicit GpusInUse(const std::string& percents) {
    are_now(percents);
    setenv("FAKE_NVML", folder_.file("percents").c_str(), 1);
  }
  void are_now(const std::string& percents) const {
    cache::write_file(folder_.file("percents"), percents);
  }

 private:
  ScopedEnvironment environment_{"FAKE_NVML", "CUDA_VISIBLE_DEVICES"};
  cache::TemporaryDirectory folder_;
};

}  // namespace dorajit::tests
