#include "runtime/launch/kernel_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "kernel_templates/template.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit::launch {
namespace {

const kernels::Variant kVariant{.operation = &kernels::operation("compose"), .types = {}};
const kernels::Config kConfig = kernels::builtin_cpu_config(kVariant);

class KernelCacheTest : public testing::Test {
 protected:
  device::CpuDevice device_;
  Statistics statistics_;
  tests::MemoryArtifactStore artifacts_;
};

TEST_F(KernelCacheTest, SecondCacheReadsTheArtifactOfTheFirst) {
  KernelCache first(Settings{}, &artifacts_, statistics_);
  ASSERT_TRUE(first.get(device_, kVariant, kConfig));
  ASSERT_TRUE(first.get(device_, kVariant, kConfig));
  EXPECT_EQ(statistics_.compilations, 1);
  EXPECT_EQ(statistics_.artifact_hits, 0);
  KernelCache second(Settings{}, &artifacts_, statistics_);
  ASSERT_TRUE(second.get(device_, kVariant, kConfig));
  EXPECT_EQ(statistics_.compilations, 1);
  EXPECT_EQ(statistics_.artifact_hits, 1);
}

TEST_F(KernelCacheTest, WorksWithoutAStore) {
  KernelCache kernels(Settings{}, nullptr, statistics_);
  EXPECT_TRUE(kernels.get(device_, kVariant, kConfig));
}

TEST_F(KernelCacheTest, ConfigsThatDifferOnlyInWorkersShareOneCompilation) {
  KernelCache kernels(Settings{}, &artifacts_, statistics_);
  kernels::Config config = kConfig;
  for (const int workers : {1, 2, 7}) {
    config.set(kernels::kWarps, workers);
    const auto ready = kernels.get(device_, kVariant, config);
    ASSERT_TRUE(ready);
    EXPECT_EQ(ready->config[kernels::kWarps], workers);
  }
  EXPECT_EQ(statistics_.compilations, 1);
}

TEST_F(KernelCacheTest, WithoutACompilerTheBuiltinKernelIsUsedWithItsOwnConfig) {
  Settings settings;
  settings.host_compiler = "none";
  KernelCache kernels(settings, &artifacts_, statistics_);
  kernels::Config config = kConfig;
  config.set(kernels::kColumnsOfProgram, 64);
  const auto ready = kernels.get(device_, kVariant, config);
  ASSERT_TRUE(ready);
  EXPECT_TRUE(ready->is_builtin);
  EXPECT_EQ(ready->config[kernels::kColumnsOfProgram], kConfig[kernels::kColumnsOfProgram]);
  EXPECT_EQ(statistics_.compilations, 0);
}

TEST_F(KernelCacheTest, SumWithoutASecondStageIsRefused) {
  KernelCache kernels(Settings{}, &artifacts_, statistics_);
  const kernels::Variant sum{.operation = &kernels::operation("backward"), .types = {}};
  const auto artifact = kernels.build(device_.info().target, kVariant, kConfig);
  ASSERT_TRUE(artifact);
  EXPECT_TRUE(device_.load(*artifact, kVariant));
  EXPECT_FALSE(device_.load(*artifact, sum));
  const auto with_both =
      kernels.build(device_.info().target, sum, kernels::builtin_cpu_config(sum));
  ASSERT_TRUE(with_both) << with_both.error().log;
  EXPECT_TRUE(device_.load(*with_both, sum));
}

TEST_F(KernelCacheTest, OperationWithoutABuiltinKernelNeedsTheCompiler) {
  Settings settings;
  settings.host_compiler = "none";
  KernelCache kernels(settings, nullptr, statistics_);
  const auto ready =
      kernels.get(device_, {.operation = &kernels::operation("add"), .types = {}}, kConfig);
  ASSERT_FALSE(ready);
  EXPECT_EQ(ready.error().code, StatusCode::kNoCompiler);
}

TEST_F(KernelCacheTest, ConcurrentThreadsCompileAKernelOnce) {
  KernelCache kernels(Settings{}, &artifacts_, statistics_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(kernels.get(device_, kVariant, kConfig)); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(statistics_.compilations, 1);
}

}  // namespace
}  // namespace dorajit::launch
