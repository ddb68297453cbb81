// Tensors with strides: what a call may pass, what a kernel gets, and on what it is tuned.
#include <gmock/gmock.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "kernel_templates/sizes.h"
#include "kernel_templates/template.h"
#include "runtime/launch/problem.h"
#include "tests/own_kernels/fake_gpu.h"
#include "tests/own_kernels/made_kernels.h"
#include "tests/own_kernels/nvrtc_here.h"
#include "tests/own_kernels/strided_kernels.h"

// Last: its Error and Status have the names of the library's own.
#include <dorajit/own_kernel.hpp>

namespace dorajit::tests {
namespace {

using kernels::Sizes;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kEntry = "scale_rows<128, 1>";

class StridesTest : public OwnKernelTest {
 protected:
  // What launches of a config take for contiguous, and write beside.
  struct Mistakes {
    bool ignores_x = false;
    bool ignores_out = false;
    bool fills_gaps = false;
    double time_ns = 1e6;
  };

  StridesTest() {
    set_variable("DORAJIT_TUNE", "off");
    fake_->launch = &scale_rows;
    mistakes().clear();
    seen() = {};
  }

  static std::map<std::string, Mistakes>& mistakes() {
    static std::map<std::string, Mistakes> all;
    return all;
  }
  // Of the last launch: rows, cols, x_stride, out_stride.
  static std::array<long long, 4>& seen() {
    static std::array<long long, 4> last{};
    return last;
  }

  static int scale_rows(const char* entry, const driver::LaunchConfig&, void** parameters) {
    const auto found = mistakes().find(entry);
    const Mistakes wrong = found == mistakes().end() ? Mistakes{} : found->second;
    fake_of_process().elapsed_ns += wrong.time_ns;
    const auto* const x = *static_cast<const float**>(parameters[0]);
    auto* const out = *static_cast<float**>(parameters[1]);
    for (std::size_t i = 0; i < 4; ++i) seen()[i] = *static_cast<long long*>(parameters[i + 2]);
    const auto [rows, cols, x_stride, out_stride] = seen();
    const long long from = wrong.ignores_x ? cols : x_stride;
    const long long to = wrong.ignores_out ? cols : out_stride;
    for (long long r = 0; r < rows; ++r) {
      for (long long c = 0; c < cols; ++c) out[r * to + c] = 2 * x[r * from + c];
      if (wrong.fills_gaps && r + 1 < rows) out[r * to + cols] = 0;
    }
    return 0;
  }

  // Of a matrix of 8 rows and 64 columns each.
  struct Memory {
    alignas(16) std::array<float, 512> x{};
    alignas(16) std::array<float, 512> out{};
    Memory() {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    }
  };
  Memory memory_;

  static TensorRef matrix(float* data, std::int64_t rows, std::int64_t cols, const Dims& strides) {
    return {data, {rows, cols}, strides, ElementType::kFloat32, Device::cuda()};
  }

  // What a call says, or "" if it ran.
  std::string call(const Json& json, const TensorRef& x, const TensorRef& out,
                   std::array<double, 4> scalars) {
    const DLTensor tensors[] = {x.dl_tensor(), out.dl_tensor()};
    const DLTensor* const pointers[] = {&tensors[0], &tensors[1]};
    return bindings::outcome_of([&](dorajit_error** error) {
             return dorajit_launch(engine(), nullptr, create(json), pointers, 2, scalars.data(), 4,
                                   nullptr, 0, error);
           })
        .message;
  }

  // What tuning logs whose default config makes a mistake.
  std::string log_of_tuning(const char* name, const Mistakes& wrong) {
    mistakes()[kEntry] = wrong;
    set_variable("DORAJIT_TUNE", "first_use");
    set_variable("DORAJIT_TUNE_SECONDS", "10");
    set_variable("DORAJIT_LOG", "warning");
    const auto engine = make_engine();
    const auto* const kernel = create(with(strided_kernel(), {{"/name", name}}));
    const bindings::LogCapture log;
    const TensorRef x = matrix(memory_.x.data(), 8, 32, {64, 1});
    const TensorRef out = matrix(memory_.out.data(), 8, 32, {64, 1});
    const DLTensor tensors[] = {x.dl_tensor(), out.dl_tensor()};
    const DLTensor* const pointers[] = {&tensors[0], &tensors[1]};
    const double scalars[] = {8, 32, 64, 64};
    EXPECT_EQ(
        dorajit_launch(engine.get(), nullptr, kernel, pointers, 2, scalars, 4, nullptr, 0, nullptr),
        DORAJIT_OK);
    tuned_ = bindings::statistics_of(engine.get()).tuned_problems;
    config_ = first_plan(engine.get()).config;
    return log.text();
  }
  std::int64_t tuned_ = 0;
  std::string config_;
};

TEST_F(StridesTest, KernelGetsTheStridesOfTheCall) {
  Engine engine;
  const Kernel kernel(strided_kernel().dump());
  const TensorRef x = matrix(memory_.x.data(), 8, 32, {64, 1});
  const TensorRef out = matrix(memory_.out.data(), 8, 32, {32, 1});
  kernel(engine, nullptr, {x, out}, {8, 32, 64, 32});
  EXPECT_THAT(seen(), ElementsAre(8, 32, 64, 32));
  EXPECT_EQ(memory_.out[33], 2 * memory_.x[65]);
  const auto explanation = kernel.explain(engine, {x, out}, {8, 32, 64, 32});
  ASSERT_TRUE(explanation);
  EXPECT_THAT(explanation->problem, testing::EndsWith("/f32,f32/v8/cols=32/rows=3"));
  // As the daemon and prewarming read it.
  const auto problem = launch::parse_problem(explanation->problem);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->largest_sizes()[2], 64);
}

// A plan of one stride serves the others, as far as its config fits.
TEST_F(StridesTest, OneProblemHasAllStrides) {
  const Json json = with(strided_kernel(), {{"/default/VEC", 4}});
  EXPECT_EQ(call(json, matrix(memory_.x.data(), 4, 32, {64, 1}),
                 matrix(memory_.out.data(), 4, 32, {32, 1}), {4, 32, 64, 32}),
            "");
  EXPECT_EQ(call(json, matrix(memory_.x.data(), 4, 32, {96, 1}),
                 matrix(memory_.out.data(), 4, 32, {40, 1}), {4, 32, 96, 40}),
            "");
  dorajit_explanation second{};
  second.struct_size = sizeof second;
  EXPECT_EQ(dorajit_explain_at(engine(), 1, &second, nullptr), DORAJIT_OK);
  EXPECT_STREQ(second.problem, "");
  EXPECT_THAT(call(json, matrix(memory_.x.data(), 4, 32, {65, 1}),
                   matrix(memory_.out.data(), 4, 32, {32, 1}), {4, 32, 65, 32}),
              HasSubstr("does not hold, with cols = 32, x_stride = 65, out_stride = 32, VEC = 4"));
}

TEST_F(StridesTest, TensorsOtherThanDescribedAreRefused) {
  const auto x = [&](std::int64_t rows, const Dims& strides) {
    return matrix(memory_.x.data(), rows, 32, strides);
  };
  const TensorRef out = matrix(memory_.out.data(), 8, 32, {32, 1});
  const Json json = strided_kernel();
  EXPECT_THAT(call(json, x(8, {64, 1}), out, {8, 32, 32, 32}),
              HasSubstr("argument `x` has 64 `x_stride` but argument `x_stride` is 32"));
  EXPECT_THAT(call(json, x(8, {64, 2}), out, {8, 32, 64, 32}),
              HasSubstr("argument `x` has a stride of 2 elements along `cols`, which is described "
                        "as contiguous; describe strides"));
  EXPECT_THAT(call(json, x(8, {-64, 1}), out, {8, 32, 64, 32}), HasSubstr("has a negative stride"));
  const Json contiguous = with(json, {{"/arguments/0/2", "T[rows, cols]"}, {"/key", kErased}});
  EXPECT_THAT(call(contiguous, x(8, {64, 1}), out, {8, 32, 64, 32}),
              HasSubstr("argument `x` has a stride of 64 elements along `rows`, which is described "
                        "as contiguous"));
  const Json fixed = with(json, {{"/arguments/0/2", "T[rows:48, cols]"}, {"/key", kErased}});
  EXPECT_THAT(call(fixed, x(8, {64, 1}), out, {8, 32, 0, 32}),
              HasSubstr("has a stride of 64 elements along `rows`, which is described as 48"));
  EXPECT_EQ(call(fixed, x(8, {48, 1}), out, {8, 32, 0, 32}), "");
  const Json shared = with(json, {{"/arguments/1/2", "T[rows:x_stride, cols]"}, {"/key", kErased}});
  EXPECT_THAT(call(shared, x(8, {64, 1}), out, {8, 32, 64, 32}),
              HasSubstr("`out` has 32 `x_stride` but argument `x_stride` is 64"));
  // Any stride is that of a single row.
  EXPECT_EQ(call(json, x(1, {7, 1}), matrix(memory_.out.data(), 1, 32, {32, 1}), {1, 32, 40, 32}),
            "");
  EXPECT_THAT(seen(), ElementsAre(1, 32, 40, 32));
}

TEST_F(StridesTest, OnlyInputsMayHaveSeveralElementsAtOneAddress) {
  const auto out = [&](const Dims& strides) { return matrix(memory_.out.data(), 8, 32, strides); };
  EXPECT_EQ(
      call(strided_kernel(), matrix(memory_.x.data(), 8, 32, {0, 1}), out({32, 1}), {8, 32, 0, 32}),
      "");
  EXPECT_EQ(memory_.out[33], 2 * memory_.x[1]);
  EXPECT_THAT(call(strided_kernel(), matrix(memory_.x.data(), 8, 32, {32, 1}), out({31, 1}),
                   {8, 32, 32, 31}),
              HasSubstr("argument `out` is written, but its strides give several of its elements "
                        "one address"));
}

TEST_F(StridesTest, ColumnWindowsOfOneMatrixDoNotOverlap) {
  const TensorRef left = matrix(memory_.x.data(), 8, 32, {64, 1});
  EXPECT_EQ(
      call(strided_kernel(), left, matrix(memory_.x.data() + 32, 8, 32, {64, 1}), {8, 32, 64, 64}),
      "");
  EXPECT_THAT(
      call(strided_kernel(), left, matrix(memory_.x.data() + 28, 8, 32, {64, 1}), {8, 32, 64, 64}),
      HasSubstr("overlaps `x`"));
  // Columns of columns: the windows are those of a matrix of more rows.
  const Json deep = with(strided_kernel(), {{"/arguments/0/2", "T[rows:s, n:x_stride, cols]"},
                                            {"/arguments/1/2", "T[rows:s, n:out_stride, cols]"},
                                            {"/key", {"T", "rows", "n", "cols"}}});
  const auto window = [&](float* data) {
    return TensorRef{data, {2, 4, 32}, {256, 64, 1}, ElementType::kFloat32, Device::cuda()};
  };
  EXPECT_EQ(call(deep, window(memory_.x.data()), window(memory_.x.data() + 32), {2, 32, 64, 64}),
            "");
}

TEST_F(StridesTest, LastDimensionsMayHaveStrides) {
  const Json columns = with(strided_kernel(), {{"/arguments/0/2", "T[rows:1, cols:x_stride]"}});
  EXPECT_EQ(call(columns, matrix(memory_.x.data(), 8, 32, {1, 16}),
                 matrix(memory_.out.data(), 8, 32, {32, 1}), {8, 32, 16, 32}),
            "");
  EXPECT_THAT(call(columns, matrix(memory_.x.data(), 8, 32, {32, 1}),
                   matrix(memory_.out.data(), 8, 32, {32, 1}), {8, 32, 1, 32}),
              HasSubstr("has a stride of 32 elements along `rows`, which is described as 1"));
  // The transposed of a contiguous matrix.
  const Json transposed =
      with(strided_kernel(), {{"/arguments/0/2", "T[rows:1, cols:rows]"}, {"/key", kErased}});
  EXPECT_EQ(call(transposed, matrix(memory_.x.data(), 8, 32, {1, 8}),
                 matrix(memory_.out.data(), 8, 32, {32, 1}), {8, 32, 0, 32}),
            "");
}

TEST_F(StridesTest, KernelThatUsesItsStridesIsTuned) {
  mistakes()["scale_rows<256, 4>"].time_ns = 1e5;
  EXPECT_EQ(log_of_tuning("right", {}), "");
  EXPECT_EQ(tuned_, 1);
  EXPECT_EQ(config_, "BLOCK=256-VEC=4");
}

// Each would win.
TEST_F(StridesTest, CandidatesThatIgnoreStridesAreQuarantined) {
  mistakes()["scale_rows<256, 4>"] = {.ignores_x = true, .time_ns = 1e4};
  mistakes()["scale_rows<256, 2>"] = {.ignores_out = true, .time_ns = 1e4};
  mistakes()["scale_rows<256, 1>"] = {.fills_gaps = true, .time_ns = 1e4};
  mistakes()["scale_rows<128, 4>"].time_ns = 2e5;
  const std::string log = log_of_tuning("some_wrong", {});
  for (const char* config : {"BLOCK=256-VEC=4", "BLOCK=256-VEC=2", "BLOCK=256-VEC=1"}) {
    EXPECT_THAT(log, HasSubstr(std::string(config) + " of some_wrong"));
  }
  EXPECT_EQ(config_, "BLOCK=128-VEC=4");
}

TEST_F(StridesTest, DefaultThatIgnoresStridesIsReported) {
  EXPECT_THAT(log_of_tuning("ignores_x", {.ignores_x = true}),
              HasSubstr("if it reads what lies between the elements of a tensor with strides, let "
                        "it use these strides"));
  EXPECT_EQ(tuned_, 0);
  EXPECT_THAT(log_of_tuning("ignores_out", {.ignores_out = true}),
              HasSubstr("between the elements of an output"));
  EXPECT_THAT(log_of_tuning("fills_gaps", {.fills_gaps = true}),
              HasSubstr("between the elements of an output"));
  EXPECT_EQ(tuned_, 0);
}

// By name, of sizes that are in a key.
std::int64_t tuned_size(const Json& json, const char* name, const Sizes& given, int width = 8) {
  const kernels::Variant variant = variant_of(made(json));
  const Sizes sizes = kernels::with_derived(variant, given, width);
  const auto& dimensions = variant.operation->dimensions;
  const auto found = std::ranges::find(dimensions, name, &kernels::Dimension::name);
  return sizes[static_cast<std::size_t>(found - dimensions.begin())];
}

TEST(Strides, TuningHasRoomBetweenRows) {
  const Json json = strided_kernel();
  EXPECT_EQ(tuned_size(json, "x_stride", {100, 4096}), 4224);
  EXPECT_EQ(tuned_size(json, "out_stride", {100, 4096}), 4224);
  EXPECT_EQ(tuned_size(json, "x_stride", {100, 4090}), 4096);
  EXPECT_EQ(tuned_size(json, "x_stride", {100, 4096}, 2), 4226);
  EXPECT_EQ(tuned_size(with(json, {{"/constraint", "cols % VEC == 0"}}), "x_stride", {100, 64}, 2),
            128);
  EXPECT_EQ(tuned_size(json, "x_stride", {100, 1}), 8);
  const Json columns = with(json, {{"/arguments/0/2", "T[rows:1, cols:x_stride]"}});
  EXPECT_EQ(tuned_size(columns, "x_stride", {100, 64}), 128);
  // The larger one of what tensors with one stride need.
  const Json shared = with(json, {{"/arguments/1/2", "T[cols:x_stride, rows]"}, {"/key", kErased}});
  EXPECT_EQ(tuned_size(shared, "x_stride", {1000, 64}), 1024);
  EXPECT_EQ(tuned_size(shared, "x_stride", {64, 1000}), 1024);
}

TEST(Strides, LastDimensionIsTunedDenseAndVerifiedSpacedOut) {
  const Json json = with(strided_kernel(), {{"/arguments/0/2", "T[rows:x_stride, cols:s]"}});
  EXPECT_EQ(tuned_size(json, "s", {100, 64}), 1);
  EXPECT_EQ(tuned_size(json, "x_stride", {100, 64}), 128);
  const auto spans = [](const Json& described) {
    const kernels::Variant variant = variant_of(made(described));
    std::vector<std::int64_t> all;
    for (const Sizes& sizes : kernels::template_of(variant).verification_sizes(
             variant, kernels::with_derived(variant, {128, 64}))) {
      all.push_back(kernels::span_length(variant.operation->operands[0].shape, sizes));
    }
    return all;
  };
  EXPECT_THAT(spans(json), ElementsAre(127 * 128 + 64, 127 * 256 + 63 * 2 + 1, 126 * 128 + 64));
  EXPECT_THAT(spans(with(json, {{"/constraint", "s == 1"}})),
              ElementsAre(127 * 128 + 64, 127 * 128 + 64, 126 * 128 + 64));
}

TEST(Strides, DescriptionIsKeptAsItIs) {
  for (const char* shape : {"T[rows:x_stride, cols]", "T[ rows : 64 , cols:1]",
                            "T[rows:x_stride, ceil_div(cols, 2) ]", "T[rows:2 * cols, cols]"}) {
    const kernels::Operation& operation = made(with(
        strided_kernel(), {{"/arguments/0/2", shape}, {"/unaligned", {"x"}}, {"/key", kErased}}));
    EXPECT_EQ(&made(Json::parse(operation.description)), &operation);
  }
}

TEST(Strides, WhatIsWrongIsNamed) {
  expect_refusals(
      strided_kernel(),
      {{{{"/arguments/0/2", "T[rows, cols:x_stride]"}},
        "has `x` with a stride of `cols` and none of `rows`"},
       {{{"/arguments/0/2", "T[rows:, cols]"}}, "where a stride is missing after a colon"},
       {{{"/arguments/0/2", "T[rows:0, cols]"}}, "a stride of `x` is called \"0\""},
       {{{"/arguments/0/2", "T[rows:cols_of_x, cols]"},
         {"/parameters/cols_of_x", {1}},
         {"/default/cols_of_x", 1}},
        "is called `cols_of_x`, as something else is"},
       {{{"/arguments/0/2", "T[rows:m * 2, cols]"}, {"/key", kErased}}, "the name `m` is unknown"},
       {{{"/arguments/0/2", "T[rows, x_stride / 2]"},
         {"/arguments/1/2", "T[rows:x_stride, cols]"},
         {"/key", kErased}},
        "has the dimension `x_stride / 2` of the stride `x_stride`"},
       {{{"/key", {"T", "rows", "cols", "x_stride"}}}, "\"key\" has `x_stride`, which is a stride"},
       {{{"/unaligned", {"y"}}}, "\"unaligned\" has `y`, which is no tensor"},
       {{{"/unaligned", "x"}}, "\"unaligned\" is no list of texts"}});
  std::string many = "T[rows:1";
  for (int i = 0; i < 12; ++i) many += ", rows:1";
  EXPECT_THAT(refusal_of(with(strided_kernel(), {{"/arguments/0/2", many + "]"}})),
              HasSubstr("has `x` with strides of more than 12 dimensions"));
}

TEST(Strides, KernelIsCompiled) {
  const auto compiler = nvrtc_here();
  if (!compiler) GTEST_SKIP() << "no NVRTC here: " << compiler.error().message;
  const auto artifact = (*compiler)->compile({.variant = variant_of(made(strided_kernel())),
                                              .config = *kernels::parse_config("BLOCK=128-VEC=4"),
                                              .target = compile::cuda_target(9, 0)});
  EXPECT_TRUE(artifact) << artifact.error().message << artifact.error().log;
}

}  // namespace
}  // namespace dorajit::tests
