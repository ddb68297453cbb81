#include "autotune/service/daemon/device_load.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/apps/daemon/fake_nvml/gpus_in_use.h"
#include "tests/fakes/scoped_environment.h"

namespace dorajit::autotune {
namespace {

constexpr const char* kH200 = "cuda/NVIDIA H200/sm_90/132 SMs/61440 KiB L2/140 GiB";
constexpr const char* kT4 = "cuda/NVIDIA T4/sm_75/40 SMs/4096 KiB L2/16 GiB";
constexpr const char* kOther = "cuda/NVIDIA H2/sm_90/132 SMs/61440 KiB L2/140 GiB";

TEST(DeviceLoad, GpuIsBusyIfNvmlReportsUtilization) {
  const tests::GpusInUse gpus("93 3");
  const auto load = DeviceLoad::of_this_machine(DORAJIT_FAKE_NVML);
  EXPECT_TRUE(load->is_busy(kH200, ""));
  EXPECT_TRUE(load->is_busy(kH200, "GPU-1"));
  EXPECT_FALSE(load->is_busy(kH200, "GPU-4"));
  EXPECT_FALSE(load->is_busy(kT4, ""));
  EXPECT_FALSE(load->is_busy(kOther, ""));
  gpus.are_now("3 3");
  EXPECT_FALSE(load->is_busy(kH200, ""));
}

TEST(DeviceLoad, LeastUsedGpuIsChosen) {
  const tests::GpusInUse gpus("93 3");
  const auto load = DeviceLoad::of_this_machine(DORAJIT_FAKE_NVML);
  EXPECT_EQ(load->idlest_gpu(kH200), "GPU-4");
  gpus.are_now("3 93");
  EXPECT_EQ(load->idlest_gpu(kH200), "GPU-1");
  EXPECT_EQ(load->idlest_gpu(kT4), "GPU-3");
  EXPECT_EQ(load->idlest_gpu(kOther), "");
  EXPECT_EQ(load->idlest_gpu("cpu/any"), "");
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_EQ(load->idlest_gpu(kH200), "") << "CUDA_VISIBLE_DEVICES is set";
}

TEST(DeviceLoad, WithoutNvmlNoGpuIsBusy) {
  const auto load = DeviceLoad::of_this_machine("no-such-library.so");
  EXPECT_FALSE(load->is_busy(kH200, ""));
  EXPECT_EQ(load->idlest_gpu(kH200), "");
  {
    const tests::ScopedEnvironment without{"FAKE_NVML", "CUDA_VISIBLE_DEVICES"};
    EXPECT_EQ(DeviceLoad::of_this_machine(DORAJIT_FAKE_NVML)->idlest_gpu(kH200), "")
        << "without a driver";
  }
  const tests::GpusInUse gpus("93 93");
  EXPECT_NE(DeviceLoad::of_this_machine(DORAJIT_FAKE_NVML)->idlest_gpu(kH200), "");
}

TEST(DeviceLoad, CpuIsBusyIfTheLoadAverageIsHigh) {
  const auto load = DeviceLoad::of_this_machine();
  double of_a_minute = 0;
  ASSERT_EQ(getloadavg(&of_a_minute, 1), 1);
  // A load of twice the processors is busy by any definition; an idle machine is not.
  const auto processors = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  if (of_a_minute > 2 * processors) EXPECT_TRUE(load->is_busy("cpu/any", ""));
  if (of_a_minute < 0.1 * processors) EXPECT_FALSE(load->is_busy("cpu/any", ""));
}

}  // namespace
}  // namespace dorajit::autotune
