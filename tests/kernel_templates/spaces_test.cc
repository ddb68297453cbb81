#include "kernel_templates/spaces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "kernel_templates/config.h"
#include "kernel_templates/templates/streaming_configs.h"
#include "tests/conformance/variant_lists.h"
#include "tests/variants.h"

namespace dorajit::kernels {
namespace {

const SpaceTraits kGpu{.kind = DeviceKind::kCuda, .processors = 132};
const SpaceTraits kCpu{.kind = DeviceKind::kCpu, .processors = 8};
const SpaceTraits kSmallCpu{.kind = DeviceKind::kCpu, .processors = 2};
const SpaceTraits kLargeCpu{.kind = DeviceKind::kCpu, .processors = 255};
constexpr std::size_t kMaxSlimConfigs = 12;

// The assertions of the template that serves the variant.
bool is_valid(const Variant& variant, const Config& named, DeviceKind kind) {
  const StreamingConfig config = as_streaming(named).value();
  const Template* const used = &template_of(variant);
  if (used == &column_sums_template) {
    return kind == DeviceKind::kCuda ? is_valid_for_cuda_column_sums(config)
                                     : is_valid_for_cpu_column_sums(config);
  }
  if (kind == DeviceKind::kCpu) return is_valid_for_cpu(config);
  return used == &row_sums_template ? is_valid_for_cuda_row_sums(config)
                                    : is_valid_for_cuda_elementwise(config);
}

void check_space(const Variant& variant, const SpaceTraits& traits, int width, SpaceKind kind) {
  SCOPED_TRACE(to_text(variant));
  const auto space = config_space(variant, traits, width, kind);
  ASSERT_FALSE(space.empty());
  EXPECT_EQ(space.front(), default_config(variant, traits, width));
  const bool has_formula = !variant.operation->formula.empty();
  std::set<std::string> texts;
  for (const Config& config : space) {
    if (has_formula) {
      EXPECT_TRUE(is_valid(variant, config, traits.kind)) << to_text(config);
    } else {
      EXPECT_EQ(why_config_is_invalid(variant, traits, config), "") << to_text(config);
    }
    EXPECT_LE(config[kVectorWidth], width);
    EXPECT_EQ(parse_config(to_text(config)), config);
    EXPECT_TRUE(texts.insert(to_text(config)).second) << to_text(config) << " is there twice";
  }
  if (has_formula && kind == SpaceKind::kSlim) EXPECT_LE(space.size(), kMaxSlimConfigs);
}

TEST(Spaces, ContainOnlyDistinctValidConfigsWithTheDefaultFirst) {
  for (const Operation* op : all_operations()) {
    if (op->formula.empty()) continue;
    for (const Variant& variant : tests::in_both_broadcasts(tests::plain_forms(*op))) {
      for (const SpaceTraits& traits : {kGpu, kCpu, kSmallCpu, kLargeCpu}) {
        for (int width = widest_vector(variant, traits.kind); width >= 1; width /= 2) {
          check_space(variant, traits, width, SpaceKind::kSlim);
          check_space(variant, traits, width, SpaceKind::kComprehensive);
          EXPECT_LT(config_space(variant, traits, width, SpaceKind::kSlim).size(),
                    config_space(variant, traits, width, SpaceKind::kComprehensive).size());
        }
      }
    }
  }
}

TEST(Spaces, OfMatricesContainOnlyDistinctValidConfigsWithTheDefaultFirst) {
  using enum ElementType;
  for (const Variant& variant :
       {tests::low_rank(kBfloat16, kBfloat16), tests::low_rank(kFloat16, kFloat32),
        tests::weight_norm(kBfloat16, kBfloat16, kBfloat16),
        tests::weight_norm(kFloat32, kFloat16, kFloat16),
        tests::weight_norm(kBfloat16, kFloat32, kFloat32),
        tests::weight_norm(kFloat64, kFloat64, kFloat64)}) {
    const bool is_norm = variant.operation->name == "weight_norm";
    for (const int architecture : {75, 80, 86, 90, 100, 120, 0}) {
      if (architecture == 75 && !is_norm) continue;  // it has no tensor cores for bfloat16
      const SpaceTraits traits = architecture == 0 ? kCpu : tests::gpu(architecture);
      for (const int width : {1, 2, 4, 8}) {
        check_space(variant, traits, width, SpaceKind::kSlim);
        check_space(variant, traits, width, SpaceKind::kComprehensive);
        if (!is_norm) continue;
        EXPECT_EQ(why_config_is_invalid(variant, traits, width, {4096, 4096, 1024},
                                        default_config(variant, traits, width, {4096, 4096, 1024})),
                  "")
            << "the default supports every rank";
      }
    }
  }
}

TEST(Spaces, EveryMixOfTypesHasAValidDefault) {
  for (const Operation* op : all_operations()) {
    if (op->formula.empty()) continue;  // its template has tests of its own
    for (const Variant& variant : tests::in_both_broadcasts(all_variants(*op))) {
      for (const SpaceTraits& traits : {kGpu, kCpu}) {
        for (int width = widest_vector(variant, traits.kind); width >= 1; width /= 2) {
          const Config config = default_config(variant, traits, width);
          EXPECT_TRUE(is_valid(variant, config, traits.kind))
              << to_text(variant) << " " << to_text(config);
          EXPECT_EQ(config[kVectorWidth], width);
        }
      }
    }
  }
}

TEST(Spaces, WidestVectorIsSixteenBytesOfTheWidestMatrixAndAtMostEightElements) {
  using enum ElementType;
  const auto width = [](ElementType lora, ElementType gain) {
    return widest_vector(
        {.operation = &operation("compose"), .types = {lora, kBfloat16, gain, kBfloat16}},
        DeviceKind::kCuda);
  };
  EXPECT_EQ(width(kBfloat16, kBfloat16), 8);
  EXPECT_EQ(width(kBfloat16, kFloat32), 8)
      << "the gain is read once and does not limit the other operands";
  EXPECT_EQ(width(kFloat32, kBfloat16), 4);
  EXPECT_EQ(widest_vector({.operation = &operation("compose"),
                           .types = {kFloat64, kFloat64, kFloat64, kFloat64}},
                          DeviceKind::kCuda),
            2);
}

TEST(Spaces, AbsentOperandsDoNotLimitVectors) {
  using enum ElementType;
  const auto width = [](ElementType d_lora) {
    return widest_vector({.operation = &operation("backward"),
                          .types = {kBfloat16, kBfloat16, kFloat32, d_lora, kBfloat16, kFloat32}},
                         DeviceKind::kCuda);
  };
  EXPECT_EQ(width(kFloat32), 4);
  EXPECT_EQ(width(kAbsent), 8)
      << "d_gain is written once per column and does not limit the other operands";
}

TEST(Spaces, CpuConfigsThatDifferInWorkersShareTheirCode) {
  Config config = default_config(tests::float_compose(), kCpu, 1);
  Config other = config;
  other.set(kWarps, 1);
  EXPECT_NE(config, other);
  EXPECT_EQ(compiled_part(config, DeviceKind::kCpu), compiled_part(other, DeviceKind::kCpu));
  EXPECT_NE(compiled_part(config, DeviceKind::kCuda), compiled_part(other, DeviceKind::kCuda));
}

TEST(Spaces, OneProcessorGivesOnlyOneWorker) {
  for (const Config& config :
       config_space(tests::float_compose(), {.kind = DeviceKind::kCpu, .processors = 1}, 1,
                    SpaceKind::kComprehensive)) {
    EXPECT_EQ(config[kWarps], 1);
  }
}

}  // namespace
}  // namespace dorajit::kernels
