#include <gtest/gtest.h>

#include <format>

#include "cache/records/tuning_records.h"

namespace dorajit::cache {
namespace {

std::string a100(int gib) {
  return std::format("cuda/NVIDIA A100-SXM4-40GB/sm_80/108 SMs/40960 KiB L2/{} GiB", gib);
}

TEST(DeviceModels, MemoryMayDifferByAnEighth) {
  EXPECT_TRUE(is_same_model(a100(39), a100(40)));
  EXPECT_TRUE(is_same_model(a100(40), a100(39)));
  EXPECT_TRUE(is_same_model(a100(44), a100(48)));
  EXPECT_FALSE(is_same_model(a100(8), a100(12)));
  EXPECT_FALSE(is_same_model(a100(40), a100(80)));
  EXPECT_EQ(memory_apart(a100(39), a100(44)), 5);
}

TEST(DeviceModels, NothingElseMayDiffer) {
  EXPECT_FALSE(is_same_model("cuda/NVIDIA H100 NVL/40 GiB", "cuda/NVIDIA H100 PCIe/40 GiB"));
  EXPECT_FALSE(is_same_model("cpu/x/8 threads", "cpu/x/9 threads"));
  EXPECT_TRUE(is_same_model("cpu/x/8 threads", "cpu/x/8 threads"));
  for (const char* other :
       {"cuda/x/ GiB", "cuda/x/-1 GiB", "cuda/x/4e GiB", "40 GiB", " GiB", ""}) {
    EXPECT_FALSE(is_same_model("cuda/x/40 GiB", other)) << other;
    EXPECT_FALSE(is_same_model(other, "cuda/x/40 GiB")) << other;
  }
}

TEST(DeviceModels, RangeHasAllOfTheModel) {
  for (const int gib : {1, 9, 39, 40, 288}) {
    const auto [first, last] = range_of_model(a100(40));
    EXPECT_LE(first, a100(gib));
    EXPECT_LE(a100(gib), last);
  }
}

}  // namespace
}  // namespace dorajit::cache
