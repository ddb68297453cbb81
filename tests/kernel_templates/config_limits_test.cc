#include <gtest/gtest.h>

#include <limits>

#include "kernel_templates/config.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/templates/streaming_configs.h"
#include "tests/conformance/variant_lists.h"

namespace dorajit::kernels {
namespace {

const SpaceTraits kGpu{.kind = DeviceKind::kCuda, .processors = 132};
const SpaceTraits kCpu{.kind = DeviceKind::kCpu, .processors = 8};
constexpr int kHuge = std::numeric_limits<int>::max();

Variant bf16(const Operation& op) { return tests::plain_mixes(op)[1]; }

std::string why(const Variant& variant, const SpaceTraits& traits, const Config& config,
                int width = 8) {
  return why_config_is_invalid(variant, traits, width, Sizes{64, 4096}, config);
}

TEST(ConfigLimits, EveryConfigOfASpaceIsValid) {
  for (const Operation* op : all_operations()) {
    if (op->formula.empty()) continue;  // its template has tests of its own
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

// NVRTC takes minutes to compile it.
TEST(ConfigLimits, TooManyRowsInFlightAreInvalid) {
  for (const std::string_view name : {"compose", "backward"}) {
    Config config = default_config(bf16(operation(name)), kGpu, 8);
    config.set(kRowsOfProgram, 512);
    config.set(kUnroll, 512);
    EXPECT_NE(why(bf16(operation(name)), kGpu, config), "") << to_text(config);
  }
}

TEST(ConfigLimits, VectorsWiderThanTheDataIsAlignedAreInvalid) {
  const Config config = default_config(bf16(operation("compose")), kGpu, 8);
  ASSERT_EQ(config[kVectorWidth], 8);
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
  config.set(kWarps, kCpu.processors + 1);
  EXPECT_NE(why(bf16(operation("compose")), kCpu, config), "");
}

TEST(ConfigLimits, ConfigOfAnotherTemplateIsInvalid) {
  for (const char* name : {"compose", "backward"}) {
    for (const char* text : {"m128-n256", "b1024-w4-r1-v8-u1", "b1024-w4-r1-v8-u1-c0-s2"}) {
      EXPECT_NE(why(bf16(operation(name)), kGpu, parse_config(text).value()), "") << text;
    }
    EXPECT_NE(why(bf16(operation(name)), kGpu, Config{}), "");
  }
}

TEST(ConfigLimits, HugeZeroOrNegativeFieldsAreInvalid) {
  for (const std::string_view name : {"compose", "backward"}) {
    for (const SpaceTraits& traits : {kGpu, kCpu}) {
      for (const Variant& variant : tests::in_both_broadcasts({bf16(operation(name))})) {
        for (const int value : {kHuge, 1 << 30, 0, -1, std::numeric_limits<int>::min()}) {
          for (const char mark :
               {kColumnsOfProgram, kWarps, kRowsOfProgram, kVectorWidth, kUnroll}) {
            Config config = default_config(variant, traits, 8);
            config.set(mark, value);
            EXPECT_NE(why(variant, traits, config), "") << to_text(variant) << to_text(config);
          }
        }
        Config config = default_config(variant, traits, 8);
        for (const int policy : {-1, 3}) {
          config.set(kCaching, policy);
          EXPECT_NE(why(variant, traits, config), "");
        }
      }
    }
  }
}

TEST(ConfigText, TextRoundTrips) {
  const Config config = as_config(StreamingConfig{2048, 8, 4, 8, 2, CachePolicy::kStreamLoads});
  EXPECT_EQ(to_text(config), "b2048-w8-r4-v8-u2-c2");
  EXPECT_EQ(parse_config(to_text(config)), config);
  const Config of_another_template{{'m', 128}, {'n', 256}, {'k', 64}, {'s', 3}};
  EXPECT_EQ(to_text(of_another_template), "m128-n256-k64-s3");
  EXPECT_EQ(parse_config("m128-n256-k64-s3"), of_another_template);
  EXPECT_NE(parse_config("m128-n256-k64-w3"), of_another_template);
}

TEST(ConfigText, OtherTextIsRefused) {
  for (const char* text :
       {"", "b", "-", "-b1", "b1-", "b1--w2x", "b1-b2", "b1-w", "B1", "1", "b+1",
        "b2048-w8-r4-v8-u2-c0 ", " b2048-w8-r4-v8-u2-c0", "b2048w8r4v8u2c0",
        "b02048-w8-r4-v8-u2-c0", "b99999999999-w8-r4-v8-u2-c0", "a1-b2-c3-d4-e5-f6-g7-h8-i9"}) {
    EXPECT_EQ(parse_config(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace dorajit::kernels
