// The sizes of a launch's stages, as functions of the variant's template, the config and the sizes.
#pragma once

#include "kernel_templates/config.h"
#include "kernel_templates/launch_arguments.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

// A CPU runs programs in any order and in ranges, and numbers them with x fastest.
struct StageShape {
  long long grid_x = 0;
  long long grid_y = 1;
  long long grid_z = 1;
  int threads = 0;  // of a program on CUDA, along x
  int threads_y = 1;
  int threads_z = 1;
  int shared_bytes = 0;  // dynamic shared memory of a program on CUDA
  // CUDA: at most one program per multiprocessor; programs loop over the remaining work.
  bool one_per_processor = false;

  [[nodiscard]] long long programs() const { return grid_x * grid_y * grid_z; }
};

struct LaunchShape {
  StageShape run;
  StageShape finish{};  // of the second stage; no programs if there is none
  double work = 0;      // elements processed; a CPU derives the number of workers from it
};

LaunchShape launch_shape(const Variant& variant, const Config& config,
                         const LaunchArguments& arguments);

}  // namespace dorajit::kernels
