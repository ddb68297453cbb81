// The example with wgmma and tensor maps: every shape of its tiles is compiled, which needs no GPU.
#include <gmock/gmock.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "kernel_templates/sizes.h"
#include "kernel_templates/template.h"
#include "tests/own_kernels/made_kernels.h"
#include "tests/own_kernels/nvrtc_here.h"

namespace dorajit::tests {
namespace {

const std::string kFolder = std::string(DORAJIT_SOURCE_DIR) + "/examples/own_kernels/";

std::string text_of(const std::string& file) {
  std::ifstream stream(kFolder + file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

kernels::Variant variant_of_matmul() {
  Json json = Json::parse(text_of("matmul.json"));
  json["source"] = text_of("matmul.cu");
  json["file"] = "matmul.cu";
  return *own_kernels::variant_of(made(json), kernels::ElementType::kBfloat16);
}

constexpr kernels::SpaceTraits kH200{
    .kind = kernels::DeviceKind::kCuda, .processors = 132, .architecture = 90};

// Of m, k and n.
std::vector<kernels::Config> configs_for(const kernels::Sizes& sizes) {
  const kernels::Variant variant = variant_of_matmul();
  std::vector<kernels::Config> configs;
  for (const kernels::Config& config :
       kernels::config_space(variant, kH200, 8, kernels::SpaceKind::kSlim)) {
    const std::string why =
        kernels::template_of(variant).why_config_does_not_fit(variant, kH200, sizes, config);
    if (why.empty()) configs.push_back(config);
  }
  return configs;
}

TEST(MatmulExample, SomeHundredConfigsFit) {
  const auto configs = configs_for({4096, 4096, 4096});
  EXPECT_GT(configs.size(), 200U);
  EXPECT_EQ(to_text(configs.front()), "BM=128-BN=128-BK=64-STAGES=4-GROUPS=2-WIDE=8");
  EXPECT_TRUE(configs_for({4096, 4095, 4096}).empty());
  EXPECT_TRUE(configs_for({4096, 4096, 4095}).empty());
  EXPECT_FALSE(configs_for({1, 8, 2}).empty());
}

// STAGES and WIDE are numbers in the same code, so that one of each suffices.
TEST(MatmulExample, EveryShapeOfTilesIsCompiledWithoutSpills) {
  const auto compiler = nvrtc_here();
  if (!compiler) GTEST_SKIP() << "no NVRTC here: " << compiler.error().message;
  std::set<std::array<int, 4>> shapes;
  for (const kernels::Config& config : configs_for({4096, 4096, 4096})) {
    const auto value = [&](const char* name) { return config[kernels::Mark(name)]; };
    if (!shapes.insert({value("BM"), value("BN"), value("BK"), value("GROUPS")}).second) continue;
    const auto artifact = (*compiler)->compile(
        {.variant = variant_of_matmul(), .config = config, .target = compile::cuda_target(9, 0)});
    ASSERT_TRUE(artifact) << to_text(config) << artifact.error().message << artifact.error().log;
    EXPECT_EQ(artifact->resources.spill_store_bytes, 0) << to_text(config);
    const int threads = 128 * (value("GROUPS") + 1);
    EXPECT_LE(artifact->resources.registers * threads, 65536) << to_text(config);
  }
  EXPECT_GT(shapes.size(), 15U);
}

}  // namespace
}  // namespace dorajit::tests
