#include "kernel_templates/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernel_templates/embedded_sources.h"
#include "kernel_templates/integer_types.h"
#include "kernel_templates/program.h"
#include "kernel_templates/template.h"
#include "kernel_templates/templates/streaming_configs.h"

namespace dorajit::kernels {
namespace {

using enum ElementType;

const Variant kMixed{.operation = &operation("compose"),
                     .types = {kBfloat16, kBfloat16, kFloat32, kBfloat16}};

Variant backward(ElementType d_out, ElementType inner, ElementType gain, ElementType d_lora,
                 ElementType d_base, ElementType d_gain) {
  return {.operation = &operation("backward"),
          .types = {d_out, inner, gain, d_lora, d_base, d_gain}};
}

TEST(Registry, OperationsSupportEveryMixOfThreeTypesAndAllDoubles) {
  EXPECT_EQ(all_variants(operation("compose")).size(), 3U * 3 * 3 * 3 + 1);
  EXPECT_EQ(all_variants(operation("compose_inner")).size(), 3U * 3 * 3 * 3 * 3 + 1);
  EXPECT_EQ(all_variants(operation("backward")).size(), 3U * 3 * 3 * 3 * 3 * 3 + 1);
  EXPECT_EQ(all_variants(operation("norm_assembly")).size(), 3U * 3 * 3 * 3 + 1);
  EXPECT_EQ(all_variants(operation("gated_silu")).size(), 3U * 3 + 1);  // gate and up are alike
}

TEST(Registry, OffersAllOperationsExceptTheUnfusedPasses) {
  EXPECT_EQ(offered_operations().front(), &operation("compose"));
  EXPECT_EQ(offered_operations().back(), &operation("compose_low_rank"));
}

TEST(Registry, DoubleMixesOnlyWithDouble) {
  EXPECT_FALSE(is_supported(
      {.operation = &operation("compose"), .types = {kFloat64, kFloat32, kFloat32, kFloat32}}));
  EXPECT_FALSE(is_supported(
      {.operation = &operation("compose"), .types = {kFloat32, kFloat32, kFloat64, kFloat32}}));
  EXPECT_TRUE(is_supported(
      {.operation = &operation("compose"), .types = {kFloat64, kFloat64, kFloat64, kFloat64}}));
  EXPECT_TRUE(is_supported(backward(kFloat64, kAbsent, kFloat64, kAbsent, kFloat64, kAbsent)));
  EXPECT_FALSE(is_supported(backward(kFloat64, kAbsent, kFloat64, kAbsent, kFloat32, kAbsent)));
}

TEST(Registry, SomeButNotAllOutputsOfBackwardMayBeAbsent) {
  EXPECT_TRUE(is_supported(backward(kBfloat16, kAbsent, kFloat32, kBfloat16, kAbsent, kAbsent)));
  EXPECT_TRUE(is_supported(backward(kBfloat16, kFloat16, kFloat32, kAbsent, kAbsent, kFloat32)));
  EXPECT_FALSE(is_supported(backward(kBfloat16, kAbsent, kFloat32, kAbsent, kAbsent, kAbsent)));
  EXPECT_FALSE(is_supported({.operation = &operation("compose_inner"),
                             .types = {kFloat32, kFloat32, kFloat32, kFloat32, kAbsent}}));
}

TEST(Registry, InnerIsPresentExactlyIfItIsSummed) {
  EXPECT_FALSE(is_supported(backward(kBfloat16, kAbsent, kFloat32, kBfloat16, kAbsent, kFloat32)));
  EXPECT_FALSE(is_supported(backward(kBfloat16, kBfloat16, kFloat32, kBfloat16, kAbsent, kAbsent)));
}

TEST(Registry, RequiredInputsMayNotBeAbsent) {
  EXPECT_FALSE(is_supported(backward(kAbsent, kFloat32, kFloat32, kFloat32, kFloat32, kFloat32)));
  EXPECT_FALSE(is_supported(backward(kFloat32, kFloat32, kAbsent, kFloat32, kFloat32, kFloat32)));
  EXPECT_FALSE(is_supported({.operation = &operation("compose"), .types = {kFloat32, kAbsent}}));
}

TEST(Registry, ChannelsLieAlongTheRowsOnlyWithABroadcastOperandAndOneSum) {
  for (const Operation* one : all_operations()) {
    Variant variant = all_variants(*one).front();
    variant.broadcast = Broadcast::kPerRow;
    EXPECT_EQ(is_supported(variant), one->has_row_form) << one->name;
  }
  EXPECT_TRUE(operation("backward").has_row_form);
  EXPECT_FALSE(operation("norm_assembly").has_row_form);
  EXPECT_FALSE(operation("gated_silu_backward").has_row_form);
}

TEST(Registry, SumUsesADifferentTemplateForEachBroadcast) {
  Variant variant = backward(kFloat32, kFloat32, kFloat32, kFloat32, kFloat32, kFloat32);
  EXPECT_TRUE(variant.has_sum());
  EXPECT_EQ(template_of(variant).name, "column_sums");
  variant.broadcast = Broadcast::kPerRow;
  EXPECT_EQ(template_of(variant).name, "row_sums");
  variant.types[1] = variant.types[5] = kAbsent;
  EXPECT_FALSE(variant.has_sum());
  EXPECT_EQ(template_of(variant).name, "elementwise");
  EXPECT_EQ(template_of(kMixed).name, "elementwise");
  EXPECT_EQ(operation("backward").sum_operand, 5);
  EXPECT_EQ(operation("compose").sum_operand, -1);
  EXPECT_EQ(operation("backward").num_sums(), 1);
  EXPECT_EQ(operation("gated_silu_backward").num_sums(), 2);
}

TEST(Registry, OperationsAreFoundByName) {
  EXPECT_EQ(find_operation("composed"), nullptr);
  for (const Operation* one : all_operations()) {
    EXPECT_EQ(find_operation(one->name), one);
    EXPECT_FALSE(one->documentation.empty());
    EXPECT_NE(one->reference, nullptr);
    EXPECT_LE(one->operands.size(), static_cast<std::size_t>(kMaxOperands));
  }
}

TEST(Registry, TypeNamesRoundTrip) {
  for (const ElementType type : {kFloat32, kBfloat16, kFloat16, kFloat64}) {
    EXPECT_EQ(parse_element_type(name(type)), type);
  }
  for (const IntegerType& type : kIntegerTypes) {
    EXPECT_EQ(name(type.type), type.text);
    EXPECT_EQ(parse_element_type(type.text), type.type);
    EXPECT_EQ(as_integer(type.type), &type);
  }
  EXPECT_EQ(parse_element_type("f8"), std::nullopt);
  EXPECT_EQ(as_integer(kAbsent), nullptr);
  EXPECT_EQ(name(kAbsent), "-");
}

TEST(Registry, VariantTextContainsOperationBroadcastAndTypes) {
  EXPECT_EQ(to_text(kMixed), "compose/bf16,bf16,f32,bf16");
  Variant variant = backward(kBfloat16, kBfloat16, kFloat32, kBfloat16, kAbsent, kFloat32);
  EXPECT_EQ(to_text(variant), "backward/bf16,bf16,f32,bf16,-,f32");
  variant.broadcast = Broadcast::kPerRow;
  EXPECT_EQ(to_text(variant), "backward.rows/bf16,bf16,f32,bf16,-,f32");
}

TEST(Registry, InstantiationIsTwoIncludesAndOneLine) {
  const std::string text = instantiation(
      kMixed, as_config({2048, 8, 1, 8, 1, CachePolicy::kStreamAll}), DeviceKind::kCuda);
  EXPECT_EQ(std::ranges::count(text, '\n'), 3);
  EXPECT_TRUE(text.starts_with("#include \"math/compose.h\"\n#include \"cuda/elementwise.cuh\"\n"));
  EXPECT_NE(text.find("StreamingConfig{2048, 8, 1, 8, 1, "), std::string::npos);
  EXPECT_NE(text.find("ElementType::kFloat32"), std::string::npos);
  EXPECT_NE(text.find("Broadcast::kPerColumn"), std::string::npos);
}

TEST(Registry, ProfilersShowOperationAndTypes) {
  Variant variant = backward(kBfloat16, kBfloat16, kFloat32, kBfloat16, kAbsent, kFloat32);
  variant.broadcast = Broadcast::kPerRow;
  const Program program = program_of(variant, as_config({}), DeviceKind::kCuda);
  const std::string name = "dorajit_backward_rows_bf16_bf16_f32_bf16_none_f32";
  EXPECT_EQ(program.entry, name + ";" + name + "_finish");
  EXPECT_TRUE(program.source.text.starts_with("#define dorajit_kernel " + name + "\n"));
  EXPECT_EQ(program_of(variant, as_config({}), DeviceKind::kCpu).entry, "");
}

TEST(Registry, InstantiationContainsBroadcastAndAbsentOperands) {
  Variant variant = backward(kBfloat16, kBfloat16, kFloat32, kAbsent, kAbsent, kFloat32);
  variant.broadcast = Broadcast::kPerRow;
  const std::string text = instantiation(variant, as_config({}), DeviceKind::kCpu);
  EXPECT_TRUE(text.starts_with("#include \"math/backward.h\"\n#include \"cpu/row_sums.h\"\n"));
  EXPECT_NE(text.find("DORAJIT_ROW_SUMS_KERNEL("), std::string::npos);
  EXPECT_NE(text.find("Broadcast::kPerRow"), std::string::npos);
  EXPECT_NE(text.find("ElementType::kAbsent, dorajit::kernels::ElementType::kAbsent, "),
            std::string::npos);
}

// One variant of each op and template.
std::vector<Variant> variants_of_every_template() {
  std::vector<Variant> variants;
  for (const Operation* one : all_operations()) variants.push_back(all_variants(*one).front());
  Variant rows = all_variants(operation("backward")).front();
  rows.broadcast = Broadcast::kPerRow;
  variants.push_back(rows);
  variants.push_back(backward(kFloat32, kAbsent, kFloat32, kFloat32, kAbsent, kAbsent));
  return variants;
}

TEST(Registry, AllIncludedSourcesAreEmbedded) {
  for (const Variant& variant : variants_of_every_template()) {
    for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      for (const EmbeddedFile* file : include_closure(source_roots(variant, kind))) {
        for (std::size_t at = file->text.find("#include \""); at != std::string_view::npos;
             at = file->text.find("#include \"", at + 1)) {
          const std::size_t begin = at + std::string_view("#include \"").size();
          const auto included = file->text.substr(begin, file->text.find('"', begin) - begin);
          EXPECT_NE(find_embedded(included), nullptr) << file->name << " includes " << included;
        }
      }
    }
  }
}

TEST(Registry, SourceIdentityDiffersByDeviceFormulaAndTemplate) {
  std::set<std::string> identities;
  const Variant column_sums = all_variants(operation("backward")).front();
  Variant row_sums = column_sums;
  row_sums.broadcast = Broadcast::kPerRow;
  const Variant no_sum = backward(kFloat32, kAbsent, kFloat32, kFloat32, kAbsent, kAbsent);
  for (const Variant& variant : {kMixed, column_sums, row_sums, no_sum}) {
    for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      identities.insert(source_identity(variant, kind));
    }
  }
  EXPECT_EQ(identities.size(), 8U);
  EXPECT_NE(source_identity(kMixed, DeviceKind::kCuda).find("math/compose.h="), std::string::npos);
}

TEST(Registry, EveryOfferedVariantHasABuiltinCpuKernel) {
  for (const Operation* one : offered_operations()) {
    for (Variant variant : all_variants(*one)) {
      for (const Broadcast broadcast : {Broadcast::kPerColumn, Broadcast::kPerRow}) {
        variant.broadcast = broadcast;
        const BuiltinKernel kernel = builtin_cpu_kernel(variant);
        EXPECT_EQ(kernel.run != nullptr, is_supported(variant)) << to_text(variant);
        EXPECT_EQ(kernel.finish != nullptr, is_supported(variant) && variant.has_sum())
            << to_text(variant);
      }
    }
  }
  EXPECT_EQ(builtin_cpu_kernel({.operation = &operation("add"), .types = {}}).run, nullptr);
}

}  // namespace
}  // namespace dorajit::kernels
