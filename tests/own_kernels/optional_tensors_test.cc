// Own kernels with tensors that a call may leave out.
#include <gmock/gmock.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "autotune/search/scratch_operands.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/template.h"
#include "runtime/launch/problem.h"
#include "tests/fakes/fake_device.h"
#include "tests/fakes/results.h"
#include "tests/own_kernels/fake_gpu.h"
#include "tests/own_kernels/made_kernels.h"
#include "tests/own_kernels/nvrtc_here.h"

namespace dorajit::tests {
namespace {

using kernels::ElementType;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr ElementType kFloat32 = ElementType::kFloat32;
constexpr ElementType kAbsent = ElementType::kAbsent;

Json with_bias() {
  return {{"name", "biased"},
          {"source", R"(template <int BLOCK>
__global__ void biased(const T* x, const T* bias, T* out, U* sums, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i >= n) return;
  const float sum = static_cast<float>(x[i]) + (bias != nullptr ? static_cast<float>(bias[i]) : 0);
  out[i] = sum;
  if (sums != nullptr) sums[i] = sum;
}
)"},
          {"entry", "biased<BLOCK>"},
          {"arguments",
           {{"x", "in", "T[n]"},
            {"bias", "in", "T[n]?"},
            {"out", "out", "T[n]"},
            {"sums", "out", "U[n]?"},
            {"n", "int64"}}},
          {"types", {{"T", {"float32", "bfloat16"}}, {"U", {"float64", "float32"}}}},
          {"parameters", {{"BLOCK", {64, 128}}}},
          {"default", {{"BLOCK", 128}}},
          {"grid", "ceil_div(n, BLOCK)"},
          {"block", "BLOCK"},
          {"key", {"T", "bucket(n)"}}};
}

kernels::Variant variant_of(const Json& json, std::array<ElementType, 4> types) {
  kernels::Variant variant{.operation = &made(json)};
  std::ranges::copy(types, variant.types.begin());
  return variant;
}

TEST(OptionalTensors, VariantsDifferByWhatIsThere) {
  const auto with_types = [](std::array<ElementType, 4> types) {
    return variant_of(with_bias(), types);
  };
  EXPECT_TRUE(kernels::is_supported(with_types({kFloat32, kFloat32, kFloat32, kFloat32})));
  const kernels::Variant alone = with_types({kFloat32, kAbsent, kFloat32, kAbsent});
  EXPECT_TRUE(kernels::is_supported(alone));
  EXPECT_FALSE(kernels::is_supported(with_types({kFloat32, kFloat32, kAbsent, kFloat32})));
  EXPECT_FALSE(kernels::is_supported(with_types({kAbsent, kFloat32, kFloat32, kAbsent})));
  EXPECT_FALSE(
      kernels::is_supported(with_types({kFloat32, ElementType::kBfloat16, kFloat32, kAbsent})));
  const launch::Problem problem =
      launch::make_problem(alone, kernels::DeviceKind::kCuda, kernels::Sizes{1000});
  EXPECT_THAT(to_text(problem), HasSubstr("/f32,-,f32,-/"));
  EXPECT_EQ(launch::parse_problem(to_text(problem)), problem);
}

TEST(OptionalTensors, TuningPassesNothingForThem) {
  FakeDevice device(1);
  const auto scratch = value_of(autotune::ScratchOperands::make(
      device, variant_of(with_bias(), {kFloat32, kAbsent, kFloat32, kAbsent}),
      {.sizes = {64}, .vector_width = 1}));
  const kernels::LaunchArguments arguments = scratch.arguments(0);
  EXPECT_NE(arguments.operands[0].data, nullptr);
  EXPECT_EQ(arguments.operands[1].data, nullptr);
  EXPECT_EQ(arguments.operands[3].data, nullptr);
  EXPECT_EQ(value_of(scratch.read_outputs(0)).size(), 64U * 4);
}

TEST(OptionalTensors, DescriptionIsKeptAsItIs) {
  const kernels::Operation& operation = made(with_bias());
  EXPECT_EQ(&made(Json::parse(operation.description)), &operation);
  EXPECT_NE(&made(with(with_bias(), {{"/arguments/1/2", "T[n]"}})), &operation);
}

TEST(OptionalTensors, WhatIsWrongIsNamed) {
  expect_refusals(
      with_bias(),
      {{{{"/arguments/0/2", "T[n]?"}}, "`x` is optional; the first tensor says where a call runs"},
       {{{"/arguments/1/2", "T[m]?"}, {"/key", {"T", "bucket(n)", "m"}}},
        "the dimension `m` is that of `bias` alone, which a call may leave out"},
       {{{"/arguments/1/2", "T[n?]"}}, "a dimension of `bias` is called \"n?\""},
       {{{"/arguments/1", {"bias", "workspace", "float32[n]?"}}}, "write a tensor as"}});
  made(with(with_bias(), {{"/arguments/1/2", "T[64]?"}}));
}

TEST(OptionalTensors, EveryVariantIsCompiled) {
  const auto compiler = nvrtc_here();
  if (!compiler) GTEST_SKIP() << "no NVRTC here: " << compiler.error().message;
  for (const ElementType bias : {ElementType::kBfloat16, kAbsent}) {
    for (const ElementType sums : {kFloat32, kAbsent}) {
      const kernels::Variant variant =
          variant_of(with_bias(), {ElementType::kBfloat16, bias, ElementType::kBfloat16, sums});
      const auto artifact = (*compiler)->compile({.variant = variant,
                                                  .config = *kernels::parse_config("BLOCK=128"),
                                                  .target = compile::cuda_target(9, 0)});
      EXPECT_TRUE(artifact) << artifact.error().message << artifact.error().log;
    }
  }
}

class OptionalTensorsTest : public OwnKernelTest {
 protected:
  OptionalTensorsTest() {
    set_variable("DORAJIT_TUNE", "off");
    fake_->launch = [](const char*, const driver::LaunchConfig&, void** parameters) {
      for (int i = 0; i < 4; ++i)
        passed()[static_cast<std::size_t>(i)] = *static_cast<void**>(parameters[i]);
      return 0;
    };
  }
  static std::array<void*, 4>& passed() {
    static std::array<void*, 4> pointers{};
    return pointers;
  }
};

TEST_F(OptionalTensorsTest, KernelGetsNullForWhatIsLeftOut) {
  alignas(16) static std::array<float, std::size_t{4} * 64> memory;
  std::int64_t shape[] = {64};
  const auto run = [&](std::array<bool, 4> is_given) {
    DLTensor tensors[4];
    const DLTensor* pointers[4] = {};
    for (std::size_t i = 0; i < 4; ++i) {
      tensors[i] = {.data = memory.data() + std::ptrdiff_t{64} * i,
                    .device = {kDLCUDA, 0},
                    .ndim = 1,
                    .dtype = {kDLFloat, 32, 1},
                    .shape = shape,
                    .strides = nullptr,
                    .byte_offset = 0};
      if (is_given[i]) pointers[i] = &tensors[i];
    }
    const double n = 64;
    return bindings::outcome_of([&](dorajit_error** error) {
      return dorajit_launch(engine(), nullptr, create(with_bias()), pointers, 4, &n, 1, nullptr, 0,
                            error);
    });
  };
  const auto outcome = run({true, false, true, false});
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  EXPECT_THAT(passed(), ElementsAre(memory.data(), nullptr, memory.data() + 128, nullptr));
  EXPECT_EQ(run({true, true, true, true}).status, DORAJIT_OK);
  EXPECT_EQ(passed()[3], memory.data() + 192);
  bindings::expect_refusal(run({true, true, false, true}), "argument `out` is null");
}

}  // namespace
}  // namespace dorajit::tests
