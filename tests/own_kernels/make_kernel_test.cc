// Descriptions of own kernels: what they become, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <vector>

#include "kernel_templates/config.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/template.h"
#include "own_kernels/description.h"
#include "own_kernels/kernel.h"
#include "runtime/launch/problem.h"
#include "tests/fakes/results.h"
#include "tests/own_kernels/made_kernels.h"

namespace dorajit::own_kernels {
namespace {

using kernels::ElementType;
using kernels::Operation;
using kernels::Sizes;
using kernels::Variant;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::expect_refusals;
using tests::Json;
using tests::kHopper;
using tests::made;
using tests::refusal_of;
using tests::swiglu;
using tests::variant_of;
using tests::with;

TEST(MakeKernelTest, DefaultMayDependOnTheSizes) {
  const Variant variant = variant_of(made(with(swiglu(), {{"/default/VEC", "min(n / 64, 8)"}})));
  EXPECT_EQ(&made(Json::parse(variant.operation->description)), variant.operation);
  const auto default_for = [&](std::int64_t n) {
    return kernels::default_config(variant, kHopper, 1, Sizes{n});
  };
  EXPECT_EQ(kernels::to_text(default_for(256)), "BLOCK=256-VEC=4");
  EXPECT_EQ(kernels::to_text(default_for(4096)), "BLOCK=256-VEC=8");
  const kernels::Template& used = kernels::template_of(variant);
  const auto why = [&](std::int64_t n) {
    return used.why_config_does_not_fit(variant, kHopper, Sizes{n}, default_for(n));
  };
  EXPECT_EQ(why(256), "");
  EXPECT_EQ(why(192),
            "its VEC is 3, which is none of its values; the default is \"min(n / 64, 8)\"");
}

TEST(MakeKernelTest, DescriptionBecomesAnOperation) {
  const Operation& operation = made(swiglu());
  EXPECT_EQ(operation.name, "swiglu");
  ASSERT_EQ(operation.operands.size(), 3U);
  EXPECT_EQ(operation.operands[1].name, "up");
  EXPECT_EQ(operation.operands[2].role, kernels::OperandRole::kOutput);
  ASSERT_EQ(operation.dimensions.size(), 1U);
  EXPECT_EQ(operation.dimensions[0].keying, kernels::Keying::kBucketed);
  EXPECT_TRUE(operation.dimensions[0].limits_class);
  ASSERT_EQ(operation.scalars.size(), 1U);
  EXPECT_EQ(operation.scalars[0], "n");
}

TEST(MakeKernelTest, EqualDescriptionsAreOneOperation) {
  Json reordered = Json::object();
  const Json original = swiglu();
  for (auto it = original.rbegin(); it != original.rend(); ++it) reordered[it.key()] = it.value();
  EXPECT_EQ(&made(original), &made(reordered));
  const Json other =
      with(original, {{"/source", std::string(tests::kSwigluSource) + "// changed\n"}});
  EXPECT_NE(&made(original), &made(other));
  EXPECT_NE(kernels::full_name(made(original)), kernels::full_name(made(other)));
}

TEST(MakeKernelTest, CanonicalTextMakesTheSameOperation) {
  const Operation& operation = made(swiglu());
  EXPECT_EQ(&made(Json::parse(operation.description)), &operation);
}

TEST(MakeKernelTest, ProblemTextIsReadBack) {
  const Variant variant = variant_of(made(swiglu()), ElementType::kBfloat16);
  const launch::Problem problem =
      launch::make_problem(variant, kernels::DeviceKind::kCuda, Sizes{3000});
  const std::string text = to_text(problem);
  EXPECT_THAT(text, testing::StartsWith("swiglu@"));
  EXPECT_THAT(text, testing::EndsWith("/bf16,bf16,bf16/v8/n12"));
  EXPECT_EQ(launch::parse_problem(text), problem);
  EXPECT_EQ(launch::parse_problem("swiglu@000000000000/bf16,bf16,bf16/v8/n12"), std::nullopt);
}

TEST(MakeKernelTest, ScalarOfZeroIsKeptInTheProblem) {
  const Json json =
      with(swiglu(), {{"/arguments/-", {"pad", "int32"}}, {"/key", {"T", "bucket(n)", "pad"}}});
  const launch::Problem problem =
      launch::make_problem(variant_of(made(json)), kernels::DeviceKind::kCuda, Sizes{4096, 0});
  EXPECT_EQ(problem.largest_sizes()[1], 0);
  EXPECT_THAT(to_text(problem), HasSubstr("/pad=0/n12"));
  EXPECT_EQ(launch::parse_problem(to_text(problem)), problem);
}

TEST(MakeKernelTest, ClassSaysWhatDividesBucketedSizesOfTheConstraint) {
  const Variant variant = variant_of(made(swiglu()));
  const auto problem_of = [&](std::int64_t n) {
    return launch::make_problem(variant, kernels::DeviceKind::kCuda, Sizes{n});
  };
  EXPECT_EQ(problem_of(4096).vector_width, 8);
  EXPECT_EQ(problem_of(4095).vector_width, 1);
  EXPECT_EQ(problem_of(4092).vector_width, 4);
  // What is tuned for a class satisfies the constraint as its calls do.
  EXPECT_EQ(problem_of(4096).largest_sizes()[0], 4096);
  EXPECT_EQ(problem_of(4092).largest_sizes()[0], 4092);
  EXPECT_EQ(problem_of(4091).largest_sizes()[0], 4095);
  for (std::int64_t n = 1; n < 200; ++n) {
    const std::int64_t largest = problem_of(n).largest_sizes()[0];
    EXPECT_GE(largest, n);
    EXPECT_EQ(problem_of(largest), problem_of(n)) << n;
  }
}

TEST(MakeKernelTest, SpaceHasEveryCombinationThatFits) {
  const Variant variant = variant_of(made(swiglu()));
  const auto all = kernels::config_space(variant, kHopper, 8, kernels::SpaceKind::kSlim);
  EXPECT_EQ(all.size(), 16U);
  EXPECT_EQ(to_text(all.front()), "BLOCK=256-VEC=1");
  const auto odd =
      kernels::config_space(variant, kHopper, 1, kernels::SpaceKind::kSlim, Sizes{4095});
  EXPECT_EQ(odd.size(), 4U);
  for (const auto& config : odd) EXPECT_EQ(config[kernels::Mark("VEC")], 1);
  for (const auto& config : all) EXPECT_EQ(kernels::parse_config(to_text(config)), config);
}

TEST(MakeKernelTest, LaunchShapeFollowsTheExpressions) {
  const Variant variant =
      variant_of(made(with(swiglu(), {{"/grid", {"ceil_div(n, BLOCK * VEC)", 2, "VEC"}},
                                      {"/block", {"BLOCK / 2", "2"}},
                                      {"/shared_memory", "BLOCK * 4"}})));
  kernels::LaunchArguments arguments;
  arguments.set_sizes(Sizes{1000});
  const auto shape =
      kernels::launch_shape(variant, *kernels::parse_config("BLOCK=128-VEC=2"), arguments, 1);
  const auto& run = shape.run;
  EXPECT_THAT((std::vector{run.grid_x, run.grid_y, run.grid_z}), ElementsAre(4, 2, 2));
  EXPECT_THAT((std::vector{run.threads, run.threads_y, run.threads_z}), ElementsAre(64, 2, 1));
  EXPECT_EQ(run.shared_bytes, 512);
}

TEST(MakeKernelTest, ParametersStandInTheOrderOfTheArguments) {
  const Json json = with(swiglu(), {{"/arguments",
                                     {{"n", "int32"},
                                      {"gate", "in", "T[n]"},
                                      {"eps", "float32"},
                                      {"out", "out", "T[n]"},
                                      {"m", "int64"},
                                      {"scale", "float64"}}},
                                    {"/key", {"T", "bucket(n)", "m"}}});
  const Operation& operation = made(json);
  kernels::LaunchArguments arguments;
  arguments.set_sizes(Sizes{7, 9});
  const double scalars[] = {7, 0.25, 9, 0.125};
  arguments.set_scalars(scalars);
  int gate = 0;
  int out = 0;
  arguments.operands[0].data = &gate;
  arguments.operands[1].data = &out;
  kernels::KernelParameters parameters;
  kernels::template_of(variant_of(operation))
      .put_parameters(variant_of(operation), arguments, parameters);
  EXPECT_EQ(*static_cast<std::int32_t*>(parameters.addresses[0]), 7);
  EXPECT_EQ(*static_cast<int**>(parameters.addresses[1]), &gate);
  EXPECT_EQ(*static_cast<float*>(parameters.addresses[2]), 0.25F);
  EXPECT_EQ(*static_cast<int**>(parameters.addresses[3]), &out);
  EXPECT_EQ(*static_cast<std::int64_t*>(parameters.addresses[4]), 9);
  EXPECT_EQ(*static_cast<double*>(parameters.addresses[5]), 0.125);
}

TEST(MakeKernelTest, TypesOfOneNameAreTheSame) {
  Variant variant = variant_of(made(swiglu()), ElementType::kBfloat16);
  EXPECT_TRUE(kernels::is_supported(variant));
  variant.types[1] = ElementType::kFloat32;
  EXPECT_FALSE(kernels::is_supported(variant));
  EXPECT_THAT(std::string(variant.operation->why_unsupported(variant)),
              HasSubstr("argument `up` takes elements of T, which is one of float32, bfloat16, "
                        "float16, the same for every argument of it"));
  EXPECT_FALSE(kernels::is_supported(variant_of(made(swiglu()), ElementType::kFloat64)));
}

TEST(MakeKernelTest, RefusalNamesTheFieldAndWhatIsWrong) {
  expect_refusals(
      swiglu(),
      {{{{"/grids", 1}}, "\"grids\" is no field"},
       {{{"/name", tests::kErased}}, "\"name\" is missing or empty"},
       {{{"/name", "a/../b"}}, "\"name\" is \"a/../b\""},
       {{{"/name", "a\nb"}}, "\"name\" is"},
       {{{"/source", ""}}, "\"source\" is missing or empty"},
       {{{"/source", 7}}, "\"source\" is no text"},
       {{{"/entry", "swish<BLOCK>"}}, "the source has no kernel `swish`; it has `swiglu`"},
       {{{"/entry", "swiglu<1>;\nint x"}}, "\"entry\" is"},
       {{{"/arguments/3", {"n", "int8", 128}}}, "int8 is an integer from -128 to 127"},
       {{{"/arguments/3", {"n", "uint64", 0.5}}},
        "uint64 is an integer from 0 to 9007199254740991"},
       {{{"/arguments/-", {"s", "int32", 1}}, {"/key", {"n", "s"}}}, "\"key\" has `s`"},
       {{{"/arguments/-", {"s", "int32", 1}}, {"/grid", "s"}}, "\"grid\": expression \"s\""},
       {{{"/arguments/-", {"s", "int32", 1}}, {"/arguments/0/2", "T[s]"}}, "as something else is"},
       {{{"/arguments/-", {"s", "float16"}}}, "of kind \"float16\""},
       {{{"/arguments", Json::array()}}, "nothing is computed"},
       {{{"/arguments/2/1", "in"}}, "nothing is computed"},
       {{{"/arguments/0/1", "input"}}, "of kind \"input\""},
       {{{"/arguments/0", {"gate", "in"}}}, "without its shape"},
       {{{"/arguments/0/2", "T"}}, "write a tensor as"},
       {{{"/arguments/0/2", "T[n, ]"}}, "a dimension of `gate`"},
       {{{"/arguments/0/2", "U[n]"}}, "elements of \"U\""},
       {{{"/types/U", {"float32"}}}, "which no tensor has"},
       {{{"/types/T", {"int4"}}}, "has \"int4\" for `T`"},
       {{{"/arguments/1/0", "gate"}}, "as something else is"},
       {{{"/arguments/1/0", "min"}}, "is called \"min\""},
       {{{"/parameters/v", {1}}, {"/default/v", 1}}, "write `V`"},
       {{{"/default/VEC", tests::kErased}}, "has no value for `VEC`"},
       {{{"/default/VEC", 3}}, "none of its values"},
       {{{"/default/VEC", "BLOCK"}}, "\"default\": expression \"BLOCK\""},
       {{{"/default/X", 3}}, "a name that is no parameter"},
       {{{"/parameters/VEC", {1, 1LL << 40}}}, "32 bits"},
       {{{"/grid", "m"}}, "\"grid\": expression \"m\""},
       {{{"/block", "BLOCK / 0"}}, "it divides by zero"},
       {{{"/grid", {1, 1, 1, 1}}}, "has not 1 to 3 expressions"},
       {{{"/grid", tests::kErased}}, "\"grid\" is missing"},
       {{{"/constraint", "n %"}}, "\"constraint\": expression"},
       {{{"/grid", std::string(500, '(') + "1"}}, "nested too deep"},
       {{{"/key", {"T"}}}, "\"key\" lacks `n`"},
       {{{"/key", {"T", "n", "m"}}}, "\"key\" has `m`"},
       {{{"/key", {"bucket(T)", "n"}}}, "has no bucket"},
       {{{"/tolerance", -1}}, "\"tolerance\" is no number from 0 to 1"},
       {{{"/options", {"-I/etc"}}}, "\"-I/etc\", which is not served"},
       {{{"/options", {"--gpu-architecture=compute_90"}}}, "which is not served"},
       {{{"/options", {"-D", "-I/etc"}}}, "\"-D\", which is not served"},
       {{{"/options", {"--std="}}}, "which is not served"},
       {{{"/options", {"--ptxas-options=--options-file=x"}}}, "which is not served"},
       {{{"/headers/a\"b", ""}}, "\"headers\" has a name"}});
}

TEST(MakeKernelTest, HugeSpaceIsRefused) {
  Json json = swiglu();
  for (const char* name : {"A", "B", "C", "D"}) {
    for (int i = 0; i < 1000; ++i) json["parameters"][name].push_back(i);
    json["default"][name] = 0;
  }
  EXPECT_THAT(refusal_of(json), HasSubstr("more than 4096 configs"));
  json = swiglu();
  for (char letter = 'A'; letter < 'J'; ++letter) {
    json["parameters"][std::string(1, letter)] = {1};
    json["default"][std::string(1, letter)] = 1;
  }
  EXPECT_THAT(refusal_of(json), HasSubstr("at most 8 are served"));
}

TEST(MakeKernelTest, ConcurrentThreadsMakeOneOperationOfADescription) {
  constexpr int kThreads = 8;
  constexpr int kKernels = 16;
  std::array<std::array<const Operation*, kKernels>, kThreads> found{};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&found, i] {
      for (int k = 0; k < kKernels; ++k) {
        const Json json = with(swiglu(), {{"/name", "concurrent_" + std::to_string(k)}});
        const auto kernel = make_kernel(json.dump());
        found[static_cast<std::size_t>(i)][static_cast<std::size_t>(k)] =
            kernel ? *kernel : nullptr;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_thread : found) EXPECT_EQ(of_thread, found.front());
  EXPECT_FALSE(std::ranges::contains(found.front(), nullptr));
}

TEST(MakeKernelTest, TooManyTensorsAndDimensionsAreRefused) {
  Json json = swiglu();
  for (int i = 0; i < 10; ++i) {
    json["arguments"].push_back({"x" + std::to_string(i), "in", "T[n]"});
  }
  EXPECT_THAT(refusal_of(json), HasSubstr("13 tensors"));
  json = swiglu();
  json["arguments"][0][2] = "T[a,b,c,d,e,f,g,h,i,j,k,l,m]";
  json.erase("key");
  EXPECT_THAT(refusal_of(json), HasSubstr("14 integers and dimensions"));
}

TEST(MakeKernelTest, TextThatIsNoObjectIsRefused) {
  for (const char* text : {"", "[]", "{", "null", "\"x\"", "{\"name\": \"\xff\"}"}) {
    EXPECT_FALSE(make_kernel(text)) << text;
  }
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_FALSE(make_kernel(deep));
  const Json json = with(swiglu(), {{"/types/T", "here"}});
  std::string text = json.dump();
  text.replace(text.find("\"here\""), 6, "[" + deep + "]");
  const Error kernel = tests::error_of(make_kernel(text));
  EXPECT_THAT(kernel.message, HasSubstr("not JSON: line 1, column "));
  EXPECT_THAT(kernel.message, HasSubstr("more than 64 levels of brackets"));
  EXPECT_FALSE(make_kernel("{\"grid\": " + deep + "}"));
  EXPECT_FALSE(make_kernel(std::string(Description::kMaxBytes + 1, ' ')));
}

}  // namespace
}  // namespace dorajit::own_kernels
