// A CUDA device and kernels for it; tests are skipped without a GPU.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/launch/kernel_cache.h"
#include "tests/conformance/cpu_kernels.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit::tests {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = device::CudaDevice::open(0);
    if (!opened) GTEST_SKIP() << "no NVIDIA GPU here: " << opened.error().message;
    device_ = *std::move(opened);
    auto settings = Settings::from_environment();
    ASSERT_TRUE(settings) << settings.error().message;
    kernels_ = std::make_unique<launch::KernelCache>(*settings, &artifacts_, statistics_);
  }

  std::unique_ptr<device::CudaDevice> device_;
  MemoryArtifactStore artifacts_;
  Statistics statistics_;
  std::unique_ptr<launch::KernelCache> kernels_;
};

}  // namespace dorajit::tests
