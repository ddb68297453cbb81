#include "kernel_templates/config_text.h"

#include <gtest/gtest.h>

namespace dorajit::kernels {
namespace {

TEST(ConfigText, ReadsBackWhatItWrites) {
  const Config config{2048, 8, 4, 8, 2, CachePolicy::kStreamLoads};
  EXPECT_EQ(to_text(config), "b2048-w8-r4-v8-u2-c2");
  EXPECT_EQ(parse_config(to_text(config)), config);
}

TEST(ConfigText, RefusesEverythingElse) {
  for (const char* text :
       {"", "b", "b2048", "b2048-w8-r4-v8-u2", "b2048-w8-r4-v8-u2-c3", "b2048-w8-r4-v8-u2-c-1",
        "b2048-w8-r4-v8-u2-c0 ", " b2048-w8-r4-v8-u2-c0", "b2048w8r4v8u2c0", "w8-b2048-r4-v8-u2-c0",
        "b02048-w8-r4-v8-u2-c0", "b99999999999-w8-r4-v8-u2-c0"}) {
    EXPECT_EQ(parse_config(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace dorajit::kernels
