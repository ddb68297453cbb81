// Own kernels with tensor maps: what is encoded, what is refused, what is compiled.
#include <gmock/gmock.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel_templates/integer_types.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/template.h"
#include "tests/own_kernels/fake_gpu.h"
#include "tests/own_kernels/made_kernels.h"
#include "tests/own_kernels/nvrtc_here.h"

namespace dorajit::tests {
namespace {

using kernels::Sizes;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kCopySource = R"(template <int ROWS, int COLS>
__global__ void copy(const T* x, T* out, const __grid_constant__ CUtensorMap x_map) {
  extern __shared__ __align__(128) T box[];
  __shared__ __align__(8) unsigned long long full;
  const unsigned barrier = static_cast<unsigned>(__cvta_generic_to_shared(&full));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(static_cast<unsigned>(ROWS * COLS * sizeof(T))));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(box))),
        "l"(&x_map), "r"(0), "r"(0), "r"(barrier)
        : "memory");
  }
  out[threadIdx.x] = box[threadIdx.x];
}
)";

Json copy_kernel() {
  return {{"name", "copy"},
          {"source", kCopySource},
          {"entry", "copy<ROWS, COLS>"},
          {"arguments",
           {{"x", "in", "T[n, m]"},
            {"out", "out", "T[n, m]"},
            {"x_map",
             "tensor_map",
             {{"of", "x"}, {"box", {"ROWS", "COLS"}}, {"swizzle", "2 * COLS"}}}}},
          {"types", {{"T", {"bfloat16", "float32", "uint8"}}}},
          {"parameters", {{"ROWS", {8, 300}}, {"COLS", {16, 32, 64, 4, 128}}}},
          {"default", {{"ROWS", 8}, {"COLS", 64}}},
          {"grid", 1},
          {"block", 32},
          {"shared_memory", "ROWS * COLS * 4"},
          {"key", {"T", "bucket(n)", "m"}}};
}

kernels::Variant variant_of(const Json& json,
                            kernels::ElementType type = kernels::ElementType::kBfloat16) {
  return *own_kernels::variant_of(made(json), type);
}

std::string why_not(const Json& json, const char* config, const Sizes& sizes,
                    kernels::ElementType type = kernels::ElementType::kBfloat16,
                    int architecture = 90) {
  const kernels::Variant variant = variant_of(json, type);
  return kernels::template_of(variant).why_config_does_not_fit(
      variant,
      {.kind = kernels::DeviceKind::kCuda, .processors = 132, .architecture = architecture}, sizes,
      *kernels::parse_config(config));
}

TEST(OwnKernelTensorMaps, BoxIsThatOfTheConfig) {
  const kernels::Variant variant =
      variant_of(with(copy_kernel(), {{"/arguments/0/2", "T[k, n, m]"},
                                      {"/arguments/2/2/box", {2, "ROWS", "COLS"}},
                                      {"/key", {"T", "k", "n", "m"}}}));
  kernels::LaunchArguments arguments;
  arguments.set_sizes(Sizes{3, 100, 24});
  arguments.operands[0].data = &arguments;
  const auto boxes = kernels::template_of(variant).tensor_boxes(
      variant, *kernels::parse_config("ROWS=8-COLS=16"), arguments, 132);
  ASSERT_EQ(boxes.count, 1U);
  const kernels::TensorBox& box = boxes.boxes[0];
  EXPECT_EQ(box.data, &arguments);
  EXPECT_EQ(box.type, kernels::ElementType::kBfloat16);
  EXPECT_EQ(box.rank, 3);
  EXPECT_THAT(box.sizes, ElementsAre(24, 100, 3, 0, 0));
  EXPECT_THAT(box.strides, ElementsAre(48, 4800, 0, 0));
  EXPECT_THAT(box.box, ElementsAre(16, 8, 2, 0, 0));
  EXPECT_EQ(box.swizzle_bytes, 32);
}

TEST(OwnKernelTensorMaps, WhatTheCopyEngineDoesNotTakeIsRefused) {
  const Json json = copy_kernel();
  const Sizes sizes{100, 64};
  EXPECT_EQ(why_not(json, "ROWS=8-COLS=64", sizes), "");
  EXPECT_EQ(why_not(json, "ROWS=8-COLS=16", {1, 8}), "");
  EXPECT_THAT(why_not(json, "ROWS=300-COLS=64", sizes),
              "its tensor map `x_map`: the side of the box \"ROWS\" is 300; it is 1 to 256, with "
              "ROWS = 300");
  EXPECT_THAT(why_not(with(json, {{"/arguments/2/2/box/0", "n - 100"}}), "ROWS=8-COLS=64", sizes),
              HasSubstr("the side of the box \"n - 100\" is 0; it is 1 to 256, with n = 100"));
  EXPECT_THAT(
      why_not(json, "ROWS=8-COLS=4", sizes),
      HasSubstr("the side of the box \"COLS\" is 8 bytes, no multiple of 16, with COLS = 4"));
  EXPECT_THAT(why_not(json, "ROWS=8-COLS=128", sizes),
              HasSubstr("the swizzle \"2 * COLS\" is 256 bytes; it is 0, 32, 64 or 128"));
  EXPECT_THAT(why_not(json, "ROWS=8-COLS=64", sizes, kernels::ElementType::kFloat32),
              HasSubstr("the side of the box \"COLS\" is 256 bytes, more than its swizzle of 128, "
                        "with COLS = 64"));
  EXPECT_EQ(why_not(with(json, {{"/arguments/2/2/swizzle", 0}}), "ROWS=8-COLS=64", sizes,
                    kernels::ElementType::kFloat32),
            "");
  EXPECT_THAT(why_not(json, "ROWS=8-COLS=64", {100, 63}),
              HasSubstr("its tensor map `x_map` is of `x`, whose elements along `n` are 126 bytes "
                        "apart, no multiple of 16; pad the tensor"));
  EXPECT_THAT(why_not(json, "ROWS=8-COLS=64", {std::int64_t{1} << 33, 64}),
              HasSubstr("which has 8589934592 elements along `n`; it is 1 to 2^32"));
  EXPECT_THAT(why_not(with(json, {{"/arguments/0/2", "T[n, n, m]"},
                                  {"/arguments/2/2/box", {1, "ROWS", "COLS"}}}),
                      "ROWS=8-COLS=64", {std::int64_t{1} << 31, std::int64_t{1} << 31}),
              HasSubstr("whose elements along `n` are 2^40 bytes apart or more"));
  EXPECT_THAT(why_not(json, "ROWS=8-COLS=64", sizes, kernels::ElementType::kBfloat16, 80),
              "its tensor map `x_map` needs a device of compute capability 9.0 or newer, and this "
              "one has 8.0");
}

TEST(OwnKernelTensorMaps, RowsMayHaveAStride) {
  const Json json = with(copy_kernel(), {{"/arguments/0/2", "T[n:row, m]"}});
  EXPECT_EQ(why_not(json, "ROWS=8-COLS=64", {100, 63, 72}), "");
  EXPECT_THAT(why_not(json, "ROWS=8-COLS=64", {100, 64, 63}),
              HasSubstr("whose elements along `n` are 126 bytes apart, no multiple of 16"));
  const kernels::Variant variant = variant_of(json);
  kernels::LaunchArguments arguments;
  arguments.set_sizes(Sizes{100, 64, 72});
  const auto boxes = kernels::template_of(variant).tensor_boxes(
      variant, *kernels::parse_config("ROWS=8-COLS=16"), arguments, 132);
  EXPECT_EQ(boxes.boxes[0].strides[0], 144);
}

TEST(OwnKernelTensorMaps, DescriptionIsKeptAsItIs) {
  const kernels::Operation& operation = made(copy_kernel());
  EXPECT_EQ(&made(Json::parse(operation.description)), &operation);
}

TEST(OwnKernelTensorMaps, WhatIsWrongIsNamed) {
  expect_refusals(
      copy_kernel(),
      {{{{"/arguments/2/2/of", "y"}}, "has the tensor map `x_map` of `y`, which is no tensor"},
       {{{"/arguments/2/2/of", kErased}}, "has `x_map`, a tensor map, without its tensor or box"},
       {{{"/arguments/2/2", "T[n]"}}, "has `x_map`, a tensor map, without its tensor or box"},
       {{{"/arguments/2/2/box", 8}}, "without its tensor or box"},
       {{{"/arguments/0/2", "T[n:row, m:1]"}}, "of `x`, whose last dimension has a stride"},
       {{{"/unaligned", {"x"}}}, "of `x`, which stands in \"unaligned\""},
       {{{"/arguments/2/2/box", {"ROWS"}}},
        "has the tensor map `x_map` with a box of 1 sides; `x` has 2 dimensions"},
       {{{"/arguments/2/2/box/1", "WIDTH"}}, "the name `WIDTH` is unknown"},
       {{{"/arguments/2/2/box/1", 1.5}}, "\"arguments\" is no expression"},
       {{{"/arguments/2/2/promotion", 1}}, "has the field \"promotion\" in `x_map`"},
       {{{"/arguments/2/1", "in"}}, "has `x_map`, a tensor, without its shape"},
       {{{"/arguments/2/1", "int32"}}, "has `x_map`, a scalar, with fields"}});
  Json many = copy_kernel();
  for (int i = 0; i < 8; ++i) {
    many["arguments"].push_back(many["arguments"][2]);
    many["arguments"].back()[0] = "map" + std::to_string(i);
  }
  EXPECT_THAT(refusal_of(many),
              HasSubstr("has the tensor map `map7` beyond the 8 that are served"));
}

TEST(OwnKernelTensorMaps, ParameterIsATensorMapByValue) {
  const auto compiler = nvrtc_here();
  if (!compiler) GTEST_SKIP() << "no NVRTC here: " << compiler.error().message;
  const auto compile = [&](const std::string& source, std::vector<Change> changes = {}) {
    changes.emplace_back("/source", source);
    const auto artifact = (*compiler)->compile({.variant = variant_of(with(copy_kernel(), changes)),
                                                .config = *kernels::parse_config("ROWS=8-COLS=64"),
                                                .target = compile::cuda_target(9, 0)});
    return artifact ? std::string("compiled") : artifact.error().message + artifact.error().log;
  };
  EXPECT_EQ(compile(kCopySource), "compiled");
  const auto with_parameter = [](const char* type) {
    return std::string("template <int, int> __global__ void copy(const T* x, T* out, ") + type +
           " x_map) {}\n";
  };
  EXPECT_EQ(compile(with_parameter("const __grid_constant__ CUtensorMap")), "compiled");
  EXPECT_THAT(compile(with_parameter("const CUtensorMap*")),
              HasSubstr("the parameter 'x_map' must be of type 'CUtensorMap'"));
  EXPECT_THAT(compile(with_parameter("long long")), HasSubstr("must be of type 'CUtensorMap'"));
  // The one of a header that the source brings.
  EXPECT_EQ(
      compile("#include <cuda.h>\n" + std::string(kCopySource),
              {{"/headers",
                {{"cuda.h",
                  "#pragma once\n"
                  "typedef struct CUtensorMap_st { alignas(128) unsigned long long words[16]; "
                  "} CUtensorMap;\n"}}}}),
      "compiled");
}

class OwnKernelTensorMapsTest : public OwnKernelTest {
 protected:
  OwnKernelTensorMapsTest() {
    set_variable("DORAJIT_TUNE", "off");
    fake_->launch = [](const char*, const driver::LaunchConfig&, void** parameters) {
      map() = *static_cast<const driver::TensorMap*>(parameters[2]);
      return 0;
    };
  }
  static driver::TensorMap& map() {
    static driver::TensorMap last{};
    return last;
  }
};

TEST_F(OwnKernelTensorMapsTest, LaunchGetsAMapOfItsTensor) {
  alignas(16) static std::array<std::byte, std::size_t{64} * 48> x;
  alignas(16) static std::array<std::byte, std::size_t{64} * 48> out;
  std::int64_t shape[] = {24, 64};
  const auto run = [&](const DLDataType& type) {
    DLTensor tensors[2];
    for (int i = 0; i < 2; ++i) {
      tensors[i] = {.data = i == 0 ? x.data() : out.data(),
                    .device = {kDLCUDA, 0},
                    .ndim = 2,
                    .dtype = type,
                    .shape = shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    }
    const DLTensor* const pointers[] = {&tensors[0], &tensors[1]};
    const auto outcome = bindings::outcome_of([&](dorajit_error** error) {
      return dorajit_launch(engine(), nullptr, create(copy_kernel()), pointers, 2, nullptr, 0,
                            nullptr, 0, error);
    });
    EXPECT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  };
  run({kDLBfloat, 16, 1});
  const auto word = [](std::size_t i) { return map().words[i]; };
  EXPECT_EQ(word(0), std::bit_cast<std::uintptr_t>(x.data()));
  constexpr auto kBfloat16 = static_cast<unsigned>(driver::TensorMapType::kBfloat16);
  EXPECT_EQ(word(1), kBfloat16 | 2U << 8U | 3U << 16U);  // rank 2, swizzle of 128 bytes
  EXPECT_THAT((std::array{word(2), word(3), word(7), word(11), word(12)}),
              ElementsAre(64U, 24U, 128U, 64U, 8U));
  run({kDLUInt, 8, 1});
  EXPECT_EQ(word(1) & 255U, static_cast<unsigned>(driver::TensorMapType::kUint8));
  EXPECT_EQ(word(7), 64U);
}

// More parameters than tensors and scalars: a workspace and tensor maps are among them.
TEST_F(OwnKernelTensorMapsTest, EveryKindOfParameterHasAPlace) {
  Json json = copy_kernel();
  for (int i = 0; i < 10; ++i) json["arguments"].push_back({"t" + std::to_string(i), "in", "T[m]"});
  for (int i = 0; i < 12; ++i) json["arguments"].push_back({"s" + std::to_string(i), "int32", i});
  for (int i = 0; i < 7; ++i) {
    json["arguments"].push_back(json["arguments"][2]);
    json["arguments"].back()[0] = "map" + std::to_string(i);
  }
  json["arguments"].push_back({"scratch", "workspace", "int32[m + 1]"});
  const kernels::Variant variant = variant_of(json);
  kernels::LaunchArguments arguments;
  arguments.set_sizes(Sizes{24, 64});
  arguments.workspace = &arguments;
  EXPECT_EQ(kernels::workspace_bytes(variant, kernels::DeviceKind::kCuda, Sizes{24, 64}), 4 * 65);
  kernels::KernelParameters parameters_of_kernel;
  std::array<std::byte, kernels::kTensorMaps * 128> maps;
  parameters_of_kernel.tensor_maps = maps.data();
  kernels::template_of(variant).put_parameters(variant, arguments, parameters_of_kernel);
  const auto& addresses = parameters_of_kernel.addresses;
  EXPECT_EQ(addresses[2], maps.data());
  EXPECT_EQ(addresses[31], maps.data() + std::ptrdiff_t{7} * 128);
  EXPECT_EQ(*static_cast<void**>(addresses[32]), &arguments);
}

}  // namespace
}  // namespace dorajit::tests
