#include <gtest/gtest.h>

#include "kernel_templates/config.h"
#include "kernel_templates/templates/streaming_configs.h"

namespace dorajit::kernels {
namespace {

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
