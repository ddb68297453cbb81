#include "autotune/search/candidates.h"

#include <gtest/gtest.h>

namespace dorajit::autotune {
namespace {

using cache::Verdict;
using kernels::DeviceKind;

constexpr int kEightWarps = 8;
constexpr int kThirtyTwoWarps = 32;

TEST(ResourceLimits, OrdinaryKernelHasNoVerdict) {
  EXPECT_FALSE(verdict_by_resources({}, kEightWarps, DeviceKind::kCpu));
  EXPECT_FALSE(verdict_by_resources({.registers = 42, .shared_bytes = 400, .stack_bytes = 8},
                                    kEightWarps, DeviceKind::kCuda));
}

TEST(ResourceLimits, SpillStoresOrLoadsGiveTheVerdictSpills) {
  EXPECT_EQ(verdict_by_resources({.spill_store_bytes = 4}, kEightWarps, DeviceKind::kCuda),
            Verdict::kSpills);
  EXPECT_EQ(verdict_by_resources({.spill_load_bytes = 4}, kEightWarps, DeviceKind::kCuda),
            Verdict::kSpills);
}

TEST(ResourceLimits, BlockWithMoreThan64KRegistersFailsToLaunch) {
  EXPECT_FALSE(verdict_by_resources({.registers = 64}, kThirtyTwoWarps, DeviceKind::kCuda));
  EXPECT_EQ(verdict_by_resources({.registers = 65}, kThirtyTwoWarps, DeviceKind::kCuda),
            Verdict::kFailedToLaunch);
  EXPECT_FALSE(verdict_by_resources({.registers = 255}, kEightWarps, DeviceKind::kCuda));
}

TEST(ResourceLimits, BlockWithMoreThan48KBytesOfStaticSharedMemoryFailsToLaunch) {
  EXPECT_EQ(verdict_by_resources({.shared_bytes = 49153}, kEightWarps, DeviceKind::kCuda),
            Verdict::kFailedToLaunch);
}

}  // namespace
}  // namespace dorajit::autotune
