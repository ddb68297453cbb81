// Own kernels with tensors of float8: values, comparison, names, calls and compilation.
#include "kernel_templates/float8.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "autotune/search/operand_contents.h"
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
using kernels::Float8Type;
using testing::HasSubstr;

const Float8Type& e4m3() { return *kernels::as_float8(kernels::kFloat8E4m3); }
const Float8Type& e5m2() { return *kernels::as_float8(kernels::kFloat8E5m2); }

Json float8_kernel() {
  return with(swiglu(), {{"/types/T", {"float8_e4m3fn", "float8_e5m2", "bfloat16"}},
                         {"/source", R"(template <int BLOCK, int VEC>
__global__ void swiglu(const T* gate, const T* up, T* out, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i < n) out[i] = T(static_cast<float>(gate[i]) * static_cast<float>(up[i]));
}
)"}});
}

kernels::Variant variant_of(const Json& json, ElementType type) {
  return *own_kernels::variant_of(made(json), type);
}

TEST(Float8, NumbersAreThoseOfTheFormats) {
  const auto wide = [](const Float8Type& type, unsigned char bits) {
    return kernels::widen_float8(type, bits);
  };
  EXPECT_EQ(wide(e4m3(), 0x00), 0);
  EXPECT_EQ(wide(e4m3(), 0x01), 0x1p-9F);
  EXPECT_EQ(wide(e4m3(), 0x08), 0x1p-6F);
  EXPECT_EQ(wide(e4m3(), 0x38), 1);
  EXPECT_EQ(wide(e4m3(), 0xbc), -1.5F);
  EXPECT_EQ(wide(e4m3(), 0x7e), 448);
  EXPECT_TRUE(std::isnan(wide(e4m3(), 0x7f)));
  EXPECT_EQ(wide(e5m2(), 0x01), 0x1p-16F);
  EXPECT_EQ(wide(e5m2(), 0x3c), 1);
  EXPECT_EQ(wide(e5m2(), 0x7b), 57344);
  EXPECT_EQ(wide(e5m2(), 0xfc), -INFINITY);
  EXPECT_TRUE(std::isnan(wide(e5m2(), 0x7d)));
}

TEST(Float8, EveryNumberIsReadBackAndTheNearestEvenOneIsTaken) {
  for (const Float8Type& type : kernels::kFloat8Types) {
    float before = -1;
    for (int bits = 0; bits < 0x80; ++bits) {
      const float value = kernels::widen_float8(type, static_cast<unsigned char>(bits));
      if (!std::isfinite(value)) break;
      EXPECT_GT(value, before);
      EXPECT_EQ(kernels::narrow_float8(type, value), bits);
      EXPECT_EQ(kernels::narrow_float8(type, -value), bits | 0x80);
      if (bits > 0) {
        const float middle = (before + value) / 2;
        EXPECT_EQ(kernels::narrow_float8(type, middle), bits % 2 == 0 ? bits : bits - 1);
        EXPECT_EQ(kernels::narrow_float8(type, std::nextafter(middle, 1e9F)), bits);
        EXPECT_EQ(kernels::narrow_float8(type, std::nextafter(middle, 0.0F)), bits - 1);
      }
      before = value;
    }
    EXPECT_EQ(before, type.largest);
    EXPECT_EQ(kernels::widen_float8(type, kernels::narrow_float8(type, 1e9F)), type.largest);
    EXPECT_TRUE(
        std::isnan(kernels::widen_float8(type, kernels::narrow_float8(type, std::nanf("")))));
  }
}

TEST(Float8, ProblemsNameTheTypes) {
  for (const Float8Type& type : kernels::kFloat8Types) {
    EXPECT_EQ(kernels::name(type.type), type.text);
    EXPECT_EQ(kernels::parse_element_type(type.text), type.type);
    EXPECT_EQ(kernels::element_size(type.type), 1);
    const kernels::Variant variant = variant_of(float8_kernel(), type.type);
    const launch::Problem problem =
        launch::make_problem(variant, kernels::DeviceKind::kCuda, kernels::Sizes{1000});
    EXPECT_EQ(launch::parse_problem(to_text(problem)), problem);
    kernels::Variant built_in{.operation = &kernels::operation("compose")};
    built_in.types[2] = type.type;
    EXPECT_FALSE(kernels::is_supported(built_in));
  }
}

TEST(Float8, DescriptionIsKeptAsItIs) {
  const kernels::Operation& operation = made(float8_kernel());
  EXPECT_EQ(&made(Json::parse(operation.description)), &operation);
}

class Float8ScratchTest : public testing::Test {
 protected:
  // Of 1000 elements.
  autotune::ScratchOperands scratch(const Json& json, ElementType type) {
    return value_of(autotune::ScratchOperands::make(device_, variant_of(json, type),
                                                    {.sizes = {1000}, .vector_width = 8}));
  }
  std::vector<float> values(const Json& json, const Float8Type& type) {
    const auto bytes = value_of(
        autotune::random_elements(variant_of(json, type.type), 0, {1000}, 1000, /*seed=*/1));
    std::vector<float> values;
    for (const std::byte one : bytes) {
      values.push_back(kernels::widen_float8(type, static_cast<unsigned char>(one)));
    }
    return values;
  }

  FakeDevice device_{1};
};

TEST_F(Float8ScratchTest, ValuesAreNormallyDistributedOrInTheirRange) {
  for (const Float8Type& type : kernels::kFloat8Types) {
    double squares = 0;
    for (const float one : values(float8_kernel(), type)) squares += one * one;
    EXPECT_NEAR(squares / 1000, 1, 0.2);
    for (const float one : values(with(float8_kernel(), {{"/ranges", {{"gate", {2, 4}}}}}), type)) {
      EXPECT_GE(one, 2);
      EXPECT_LE(one, 4);
    }
  }
}

// One rounding step may differ, of small numbers too, whose steps are wider than their size says.
TEST_F(Float8ScratchTest, OutputsMayDifferByARoundingStep) {
  const Json json = with(float8_kernel(), {{"/tolerance", 1e-6}});
  for (const Float8Type& type : kernels::kFloat8Types) {
    const auto operands = scratch(json, type.type);
    const auto compare = [&](int wanted, int found) {
      std::vector<std::byte> outputs(1000, std::byte{0x38});
      const auto image = value_of(operands.read(0));
      outputs[7] = static_cast<std::byte>(wanted);
      const auto expected = operands.with_outputs(image, outputs);
      outputs[7] = static_cast<std::byte>(found);
      return operands.compare(operands.with_outputs(image, outputs), expected,
                              autotune::ScratchOperands::Closeness::kWithinTolerance);
    };
    using Difference = autotune::ScratchOperands::Difference;
    for (const int bits : {0x01, 0x07, 0x08, 0x38, 0x70}) {
      EXPECT_EQ(compare(bits, bits + 1), Difference::kNone) << bits;
      EXPECT_EQ(compare(bits, bits + 3), Difference::kOutputs) << bits;
    }
    EXPECT_EQ(compare(0x7f, 0x7f), Difference::kNone);  // NaN
    EXPECT_EQ(compare(0x7f, 0x38), Difference::kOutputs);
    EXPECT_EQ(compare(0x38, 0x7f), Difference::kOutputs);
  }
}

std::string compiled(const Json& json, ElementType type, int major = 9) {
  const auto compiler = nvrtc_here();
  if (!compiler) return "no NVRTC";
  const auto artifact = (*compiler)->compile({.variant = variant_of(json, type),
                                              .config = *kernels::parse_config("BLOCK=256-VEC=1"),
                                              .target = compile::cuda_target(major, 0)});
  return artifact ? "" : artifact.error().message + artifact.error().log;
}

TEST(Float8, SourceConvertsThem) {
  if (!nvrtc_here()) GTEST_SKIP() << "no NVRTC here";
  for (const ElementType type : {kernels::kFloat8E4m3, kernels::kFloat8E5m2}) {
    EXPECT_EQ(compiled(float8_kernel(), type), "");
    EXPECT_EQ(compiled(float8_kernel(), type, 8), "");  // without an instruction
    // As bytes, for sources that only move them.
    const Json bytes = with(
        float8_kernel(),
        {{"/types/T", {"float8_e4m3fn", "float8_e5m2"}},
         {"/source",
          "template <int, int> __global__ void swiglu(const unsigned char* gate, const unsigned "
          "char* up, unsigned char* out, long long n) {}\n"}});
    EXPECT_EQ(compiled(bytes, type), "");
    const std::string other = type == kernels::kFloat8E4m3 ? "float8_e5m2" : "float8_e4m3fn";
    const Json mistaken = with(
        bytes,
        {{"/source", "template <int, int> __global__ void swiglu(const T* gate, const dorajit::" +
                         other + "* up, T* out, long long n) {}\n"}});
    EXPECT_THAT(compiled(mistaken, type), HasSubstr("the parameter 'up' must be of type"));
  }
}

TEST(Float8, TypesOfTheToolkitAreServed) {
  const Json json = with(
      float8_kernel(), {{"/types/T", {"__nv_fp8_e4m3", "__nv_fp8_e5m2"}}, {"/include", {"cuda"}}});
  const auto kernel = own_kernels::make_kernel(json.dump());
  if (!kernel && kernel.error().message.contains("include")) GTEST_SKIP() << "no toolkit here";
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_THAT(refusal_of(with(json, {{"/include", Json::array()}})), HasSubstr("cuda_fp8.h"));
  if (!nvrtc_here()) GTEST_SKIP() << "no NVRTC here";
  EXPECT_EQ(compiled(json, kernels::kFloat8E4m3), "");
}

class OwnKernelFloat8Test : public OwnKernelTest {
 protected:
  OwnKernelFloat8Test() { set_variable("DORAJIT_TUNE", "off"); }

  bindings::Outcome run(const DLDataType& type) {
    alignas(16) static std::array<std::byte, std::size_t{3} * 64> memory;
    static std::int64_t shape[] = {64};
    fake_->launch = [](const char*, const driver::LaunchConfig&, void**) { return 0; };
    DLTensor tensors[3];
    const DLTensor* pointers[3];
    for (int i = 0; i < 3; ++i) {
      tensors[i] = {.data = memory.data() + std::ptrdiff_t{64} * i,
                    .device = {kDLCUDA, 0},
                    .ndim = 1,
                    .dtype = type,
                    .shape = shape,
                    .strides = nullptr,
                    .byte_offset = 0};
      pointers[i] = &tensors[i];
    }
    const double n = 64;
    return bindings::outcome_of([&](dorajit_error** error) {
      return dorajit_launch(engine(), nullptr, create(float8_kernel()), pointers, 3, &n, 1, nullptr,
                            0, error);
    });
  }
};

TEST_F(OwnKernelFloat8Test, TensorsHaveTheCodesOfDlpack) {
  for (const std::uint8_t code : {std::uint8_t{10}, std::uint8_t{12}}) {
    const auto outcome = run({code, 8, 1});
    EXPECT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  }
  bindings::expect_refusal(run({8, 8, 1}), "has elements of DLPack type code 8 with 8 bits", "",
                           DORAJIT_UNSUPPORTED);
}

}  // namespace
}  // namespace dorajit::tests
