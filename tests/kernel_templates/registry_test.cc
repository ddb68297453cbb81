#include "kernel_templates/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernel_templates/embedded_sources.h"

namespace dorajit::kernels {
namespace {

using enum ElementType;

const Variant kMixed{.op = Op::kCompose, .types = {kBfloat16, kBfloat16, kFloat32, kBfloat16}};

TEST(Registry, ComposeHasEveryMixOfThreeTypesAndAllDoubles) {
  EXPECT_EQ(all_variants(Op::kCompose).size(), 3U * 3 * 3 * 3 + 1);
}

TEST(Registry, DoubleGoesOnlyWithDouble) {
  EXPECT_FALSE(
      is_supported({.op = Op::kCompose, .types = {kFloat64, kFloat32, kFloat32, kFloat32}}));
  EXPECT_FALSE(
      is_supported({.op = Op::kCompose, .types = {kFloat32, kFloat32, kFloat64, kFloat32}}));
  EXPECT_TRUE(
      is_supported({.op = Op::kCompose, .types = {kFloat64, kFloat64, kFloat64, kFloat64}}));
}

TEST(Registry, OpsStandAtTheirOwnIndex) {
  for (const OpSpec& one : all_ops()) {
    EXPECT_EQ(&spec(one.op), &one);
    EXPECT_NE(one.reference, nullptr);
    EXPECT_LE(one.operands.size(), static_cast<std::size_t>(kMaxOperands));
  }
}

TEST(Registry, TypeNamesReadBack) {
  for (const ElementType type : {kFloat32, kBfloat16, kFloat16, kFloat64}) {
    EXPECT_EQ(parse_element_type(name(type)), type);
  }
  EXPECT_EQ(parse_element_type("f8"), std::nullopt);
  EXPECT_EQ(to_text(kMixed), "compose/bf16,bf16,f32,bf16");
}

TEST(Registry, AnInstantiationIsTwoIncludesAndOneLine) {
  const std::string text =
      instantiation(kMixed, {2048, 8, 1, 8, 1, CachePolicy::kStreamAll}, DeviceKind::kCuda);
  EXPECT_EQ(std::ranges::count(text, '\n'), 3);
  EXPECT_TRUE(text.starts_with("#include \"math/compose.h\"\n#include \"cuda/elementwise.cuh\"\n"));
  EXPECT_NE(text.find("Config{2048, 8, 1, 8, 1, "), std::string::npos);
  EXPECT_NE(text.find("ElementType::kFloat32"), std::string::npos);
}

TEST(Registry, EverySourceThatATemplateIncludesIsEmbedded) {
  for (const OpSpec& one : all_ops()) {
    for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      for (const EmbeddedFile* file : include_closure(source_roots(one.op, kind))) {
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

TEST(Registry, SourceIdentityDiffersByDeviceAndFormulaFile) {
  std::set<std::string> identities;
  for (const Op op : {Op::kCompose, Op::kAdd}) {
    for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      identities.insert(source_identity(op, kind));
    }
  }
  EXPECT_EQ(identities.size(), 4U);
  EXPECT_NE(source_identity(Op::kCompose, DeviceKind::kCuda).find("math/compose.h="),
            std::string::npos);
}

TEST(Registry, TheLibraryHoldsACpuKernelForEveryVariantOfCompose) {
  std::set<CpuFunction> kernels;
  for (const Variant& variant : all_variants(Op::kCompose)) {
    const CpuFunction kernel = builtin_cpu_kernel(variant);
    ASSERT_NE(kernel, nullptr) << to_text(variant);
    EXPECT_TRUE(kernels.insert(kernel).second) << to_text(variant);
  }
  EXPECT_EQ(builtin_cpu_kernel({.op = Op::kAdd, .types = {}}), nullptr);
}

}  // namespace
}  // namespace dorajit::kernels
