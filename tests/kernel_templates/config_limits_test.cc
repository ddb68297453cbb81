#include "kernel_templates/config_limits.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernel_templates/config_text.h"
#include "tests/conformance/variant_lists.h"

namespace dorajit::kernels {
namespace {

const SpaceTraits kGpu{.kind = DeviceKind::kCuda, .processors = 132};
const SpaceTraits kCpu{.kind = DeviceKind::kCpu, .processors = 8};
constexpr int kHuge = std::numeric_limits<int>::max();

Variant bf16(const Operation& op) { return tests::plain_mixes(op)[1]; }

std::string why(const Variant& variant, const SpaceTraits& traits, const Config& config,
                int width = 8) {
  return why_config_is_invalid(variant, traits, width, config);
}

TEST(ConfigLimits, EverySpaceLiesWithin) {
  for (const Operation* op : all_operations()) {
    for (const Variant& variant :
         tests::in_both_broadcasts(tests::with_every_subset(tests::plain_mixes(*op)))) {
      for (const SpaceTraits& traits : {kGpu, kCpu}) {
        for (int width = widest_vector(variant, traits.kind); width >= 1; width /= 2) {
          for (const SpaceKind kind : {SpaceKind::kSlim, SpaceKind::kComprehensive}) {
            for (const Config& config : config_space(variant, traits, width, kind)) {
              EXPECT_EQ(why(variant, traits, config, width), "")
                  << to_text(variant) << " " << to_text(config);
            }
          }
        }
      }
    }
  }
}

// NVRTC takes minutes for it.
TEST(ConfigLimits, ManyRowsInFlightAreInvalid) {
  for (const std::string_view name : {"compose", "backward"}) {
    Config config = default_config(bf16(operation(name)), kGpu, 8);
    config.rows_per_program = 512;
    config.unroll = 512;
    EXPECT_NE(why(bf16(operation(name)), kGpu, config), "") << to_text(config);
  }
}

TEST(ConfigLimits, VectorsWiderThanTheDataIsAlignedAreInvalid) {
  const Config config = default_config(bf16(operation("compose")), kGpu, 8);
  ASSERT_EQ(config.vector_width, 8);
  EXPECT_EQ(why(bf16(operation("compose")), kGpu, config, 8), "");
  for (const int width : {1, 2, 4}) {
    EXPECT_EQ(why(bf16(operation("compose")), kGpu, config, width),
              "its vectors of 8 elements do not fit the data, which is aligned to " +
                  std::to_string(width));
  }
}

TEST(ConfigLimits, VectorsWiderThanAnAccessAreInvalid) {
  Variant f64 = bf16(operation("compose"));
  f64.types.fill(ElementType::kFloat64);
  const Config config = default_config(bf16(operation("compose")), kGpu, 8);
  EXPECT_NE(why(f64, kGpu, config), "");
}

TEST(ConfigLimits, MoreWorkersThanProcessorsAreInvalid) {
  Config config = default_config(bf16(operation("compose")), kCpu, 1);
  EXPECT_EQ(why(bf16(operation("compose")), kCpu, config), "");
  config.num_warps = kCpu.processors + 1;
  EXPECT_NE(why(bf16(operation("compose")), kCpu, config), "");
}

TEST(ConfigLimits, NoFieldMayBeHugeZeroOrNegative) {
  for (const std::string_view name : {"compose", "backward"}) {
    for (const SpaceTraits& traits : {kGpu, kCpu}) {
      for (const Variant& variant : tests::in_both_broadcasts({bf16(operation(name))})) {
        for (const int value : {kHuge, 1 << 30, 0, -1, std::numeric_limits<int>::min()}) {
          for (int Config::* field :
               {&Config::block_size, &Config::num_warps, &Config::rows_per_program,
                &Config::vector_width, &Config::unroll}) {
            Config config = default_config(variant, traits, 8);
            config.*field = value;
            EXPECT_NE(why(variant, traits, config), "") << to_text(variant) << to_text(config);
          }
        }
        Config config = default_config(variant, traits, 8);
        config.cache_policy = static_cast<CachePolicy>(3);
        EXPECT_NE(why(variant, traits, config), "");
      }
    }
  }
}

}  // namespace
}  // namespace dorajit::kernels
