// Every operation on the CPU device, with random calls.
#include "tests/conformance/random_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/device/cpu/cpu_device.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit::tests {
namespace {

// Limited, because compilations are slow.
Variants compiled_variants() {
  Variants variants = in_both_broadcasts({plain_mixes(kernels::operation("backward"))[0],
                                          plain_mixes(kernels::operation("backward"))[1],
                                          plain_mixes(kernels::operation("compose_inner"))[5]});
  for (const kernels::Variant& variant :
       with_only_the_sum(in_both_broadcasts({plain_mixes(kernels::operation("backward"))[1]}))) {
    variants.push_back(variant);
  }
  return variants;
}

TEST(RandomCases, AreExactWithBuiltinKernels) {
  device::CpuDevice device;
  Statistics statistics;
  Settings settings;
  settings.host_compiler = "none";
  launch::KernelCache kernels(settings, nullptr, statistics);
  EXPECT_THAT(check_random_cases(device, kernels, 1, 1000), testing::IsEmpty());
}

TEST(RandomCases, AreExactWithCompiledKernels) {
  device::CpuDevice device;
  Statistics statistics;
  MemoryArtifactStore artifacts;
  launch::KernelCache kernels(Settings{}, &artifacts, statistics);
  EXPECT_THAT(check_random_cases(device, kernels, 1000, 80, compiled_variants()),
              testing::IsEmpty());
  EXPECT_EQ(statistics.builtin_kernels, 0);
}

}  // namespace
}  // namespace dorajit::tests
