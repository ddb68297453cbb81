// The CPU device, with kernels that are compiled and with those that are built in.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "runtime/device/cpu/cpu_device.h"
#include "runtime/launch/kernel_cache.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit::tests {

inline std::string join(const std::vector<std::string>& lines) {
  return std::accumulate(lines.begin(), lines.end(), std::string(),
                         [](std::string text, const auto& line) { return text + line + "\n"; });
}

inline Settings without_compiler() {
  Settings settings;
  settings.host_compiler = "none";
  return settings;
}

class CpuKernelsTest : public testing::Test {
 protected:
  device::CpuDevice device_;
  Statistics statistics_;
  MemoryArtifactStore artifacts_;
  launch::KernelCache compiled_{Settings{}, &artifacts_, statistics_};
  launch::KernelCache builtin_{without_compiler(), nullptr, statistics_};
};

}  // namespace dorajit::tests
