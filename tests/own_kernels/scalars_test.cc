// Scalars of own kernels, and dimensions that are constant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <format>
#include <stdexcept>

#include "autotune/search/scratch_operands.h"
#include "kernel_templates/config.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/template.h"
#include "own_kernels/argument.h"
#include "own_kernels/kernel.h"
#include "runtime/launch/problem.h"
#include "tests/fakes/fake_device.h"
#include "tests/fakes/results.h"
#include "tests/own_kernels/made_kernels.h"
#include "tests/own_kernels/nvrtc_here.h"

namespace dorajit::own_kernels {
namespace {

using kernels::Operation;
using kernels::Sizes;
using testing::HasSubstr;
using tests::Json;
using tests::made;
using tests::swiglu;
using tests::variant_of;

TEST(OwnKernelScalarsTest, ScalarOfEachTypeHasItsBytes) {
  for (const kernels::IntegerType& type : kernels::kIntegerTypes) {
    const auto [least, most] = range_of(type);
    for (const bool is_size : {true, false}) {
      SCOPED_TRACE(std::format("{} {}", type.name, is_size));
      Json json = tests::with(swiglu(), {{"/arguments/-", {"x", type.name}}});
      if (!is_size) json["arguments"].back().push_back(1);
      json["key"] = is_size ? Json({"bucket(n)", "x"}) : Json({"bucket(n)"});
      const Operation& operation = made(json);
      ASSERT_EQ(operation.dimensions.size(), is_size ? 2U : 1U);
      for (const double value : {least, most}) {
        if (is_size && value < 0) continue;
        kernels::LaunchArguments arguments;
        arguments.set_sizes(Sizes{7, static_cast<std::int64_t>(value)});
        const double scalars[] = {7, value};
        arguments.set_scalars(scalars);
        kernels::KernelParameters parameters;
        kernels::template_of(variant_of(operation))
            .put_parameters(variant_of(operation), arguments, parameters);
        const auto wanted = static_cast<std::int64_t>(value);
        EXPECT_EQ(
            std::memcmp(parameters.addresses[4], &wanted, static_cast<std::size_t>(type.bytes)), 0);
      }
    }
  }
}

TEST(OwnKernelScalarsTest, IntegerWithAValueForTuningIsInNoKey) {
  Json json = swiglu();
  json["arguments"].insert(
      json["arguments"].end(),
      {{"seed", "uint64", 7}, {"is_last", "bool", true}, {"eps", "float32", 1e-5}});
  const Operation& operation = made(json);
  EXPECT_EQ(
      to_text(launch::make_problem(variant_of(operation), kernels::DeviceKind::kCuda, Sizes{4096})),
      full_name(operation) + "/f32,f32,f32/v8/n12");
  ASSERT_EQ(operation.scalar_values.size(), 4U);
  EXPECT_EQ(operation.scalar_values[1].tuned, 7);
  EXPECT_EQ(operation.scalar_values[2].tuned, 1);
  EXPECT_EQ(operation.scalar_values[3].tuned, 1e-5);
  // As a kept description has it.
  EXPECT_EQ(&made(Json::parse(operation.description)), &operation);
  json["arguments"][4][2] = 8;
  EXPECT_NE(&made(json), &operation);
}

TEST(OwnKernelScalarsTest, TuningPassesTheValuesForTuning) {
  Json json = swiglu();
  json["arguments"].insert(json["arguments"].end(), {{"step", "int8", -3}, {"eps", "float32"}});
  tests::FakeDevice device(1);
  const auto scratch = tests::value_of(autotune::ScratchOperands::make(
      device, variant_of(made(json)), {.sizes = Sizes{64}, .vector_width = 1}));
  const kernels::LaunchArguments arguments = scratch.arguments(0);
  EXPECT_EQ(arguments.all_scalars[0], 64);
  EXPECT_EQ(arguments.all_scalars[1], -3);
  EXPECT_EQ(arguments.all_scalars[2], 0.5);
}

TEST(OwnKernelScalarsTest, ConstantDimensionIsInNoKey) {
  const Json json = tests::with(swiglu(), {{"/arguments/1/2", "T[n, 256]"}});
  const Operation& operation = made(json);
  const launch::Problem problem =
      launch::make_problem(variant_of(operation), kernels::DeviceKind::kCuda, Sizes{4096});
  EXPECT_EQ(to_text(problem), full_name(operation) + "/f32,f32,f32/v8/n12");
  EXPECT_EQ(launch::parse_problem(to_text(problem)), problem);
  EXPECT_EQ(kernels::row_length(operation.operands[1].shape, problem.largest_sizes()), 4096 * 256);
  EXPECT_EQ(kernels::to_text(operation, problem.largest_sizes()), "4096 n");
}

TEST(OwnKernelScalarsTest, TypeOfEachScalarIsCompared) {
  auto compiler = tests::nvrtc_here();
  if (!compiler) GTEST_SKIP() << "no NVRTC here: " << compiler.error().message;
  const auto compile = [&](const Json& json) {
    return (*compiler)->compile({.variant = variant_of(made(json)),
                                 .config = *kernels::parse_config("BLOCK=256-VEC=4"),
                                 .target = compile::cuda_target(9, 0)});
  };
  for (const kernels::IntegerType& type : kernels::kIntegerTypes) {
    for (const bool is_right : {true, false}) {
      const Json json = tests::with(
          swiglu(), {{"/arguments/-", {"x", type.name, 1}},
                     {"/source", std::format("template <int, int> __global__ void swiglu(const T*, "
                                             "const T*, T*, long long, {} x) "
                                             "{{}}",
                                             is_right ? type.cuda : "float")}});
      const auto artifact = compile(json);
      EXPECT_EQ(artifact.has_value(), is_right) << type.name;
      if (is_right || artifact) continue;
      EXPECT_THAT(artifact.error().message,
                  HasSubstr(std::format("the parameter 'x' must be of type '{}'", type.cuda)));
    }
  }
  // A value that may be negative is not an unsigned one.
  Json json = tests::with(swiglu(), {{"/arguments/-", {"x", "int32", 1}}});
  json["source"] =
      "template <int, int> __global__ void swiglu(const T*, const T*, T*, long long, unsigned) {}";
  EXPECT_FALSE(compile(json));
}

}  // namespace
}  // namespace dorajit::own_kernels
