// compose on the CPU device: every bit, for every type mix and config.
#include "tests/conformance/compose_conformance.h"

#include <gtest/gtest.h>

#include <numeric>

#include "runtime/device/cpu/cpu_device.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit::tests {
namespace {

std::string join(const std::vector<std::string>& lines) {
  return std::accumulate(lines.begin(), lines.end(), std::string(),
                         [](std::string text, const auto& line) { return text + line + "\n"; });
}

class ComposeOnCpu : public testing::Test {
 protected:
  device::CpuDevice device_;
  Statistics statistics_;
  MemoryArtifactStore artifacts_;
  launch::KernelCache kernels_{Settings{}, &artifacts_, statistics_};
};

TEST_F(ComposeOnCpu, EveryConfigOfTheComprehensiveSpaceMatchesThePlainReference) {
  const auto failures = check_compose(device_, kernels_, widest_compose_variants(),
                                      kernels::SpaceKind::kComprehensive);
  EXPECT_TRUE(failures.empty()) << join(failures);
  EXPECT_EQ(statistics_.builtin_kernels, 0) << "the host compiler must have been used";
}

TEST_F(ComposeOnCpu, EveryTypeMixMatchesThePlainReferenceWithEveryConfig) {
  const auto failures = check_compose(
      device_, kernels_, kernels::all_variants(kernels::Op::kCompose), kernels::SpaceKind::kSlim);
  EXPECT_TRUE(failures.empty()) << join(failures);
  EXPECT_EQ(statistics_.builtin_kernels, 0) << "the host compiler must have been used";
}

TEST_F(ComposeOnCpu, BuiltInKernelsMatchThePlainReferenceForEveryTypeMix) {
  Settings settings;
  settings.host_compiler = "none";
  launch::KernelCache builtin(settings, nullptr, statistics_);
  const auto failures = check_compose(
      device_, builtin, kernels::all_variants(kernels::Op::kCompose), kernels::SpaceKind::kSlim);
  EXPECT_TRUE(failures.empty()) << join(failures);
  EXPECT_GT(statistics_.builtin_kernels, 0);
  EXPECT_EQ(statistics_.compilations, 0);
}

}  // namespace
}  // namespace dorajit::tests
