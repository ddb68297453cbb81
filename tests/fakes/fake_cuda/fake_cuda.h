// What tests tell the driver without a GPU (fake_cuda.cc) by a symbol of it.
#pragma once

#include "runtime/driver/cuda_driver.h"

namespace dorajit::tests {

struct FakeCuda {
  // Runs a launch on the host, whose memory is the device's; `entry` is the symbol of the kernel.
  // What it returns is what the launch returns. Null: launches do nothing.
  int (*launch)(const char* entry, const driver::LaunchConfig& config, void** parameters) = nullptr;
  double elapsed_ns = 0;  // of the device; a launch adds what it took
  bool is_capturing = false;
  int loaded_modules = 0;
  int comparisons = 0;  // launches of the kernel that compares sets of operands
  std::size_t downloaded_bytes = 0;
  std::size_t allocation_limit = ~std::size_t{0};  // a larger allocation fails
};

}  // namespace dorajit::tests

// The one of the process.
extern "C" dorajit::tests::FakeCuda* dorajit_fake_cuda();
