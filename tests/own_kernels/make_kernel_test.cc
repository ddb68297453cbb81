// Descriptions of own kernels: what they become, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernel_templates/config_text.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/template.h"
#include "own_kernels/description.h"
#include "own_kernels/kernel.h"
#include "runtime/launch/problem.h"
#include "tests/own_kernels/descriptions.h"

namespace dorajit::own_kernels {
namespace {

using kernels::ElementType;
using kernels::Operation;
using kernels::Sizes;
using kernels::Variant;
using testing::HasSubstr;
using tests::Json;
using tests::swiglu;

const kernels::SpaceTraits kHopper{
    .kind = kernels::DeviceKind::kCuda, .processors = 132, .architecture = 90};

const Operation& made(const Json& json) {
  const auto kernel = make_kernel(json.dump());
  if (!kernel) throw std::runtime_error(kernel.error().message);
  return **kernel;
}

Variant variant_of(const Operation& operation, ElementType type = ElementType::kFloat32) {
  Variant variant{.operation = &operation};
  for (std::size_t i = 0; i < operation.operands.size(); ++i) variant.types[i] = type;
  return variant;
}

std::string refusal_of(const Json& json) {
  const auto kernel = make_kernel(json.dump());
  EXPECT_FALSE(kernel) << json.dump();
  return kernel ? std::string() : kernel.error().message;
}

TEST(MakeKernelTest, DefaultMayDependOnTheSizes) {
  Json json = swiglu();
  json["default"]["VEC"] = "min(n / 64, 8)";
  const Variant variant = variant_of(made(json));
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
  Json other = swiglu();
  other["source"] = std::string(tests::kSwigluSource) + "// changed\n";
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
  Json json = swiglu();
  json["arguments"].push_back({"pad", "int32"});
  json["key"] = {"T", "bucket(n)", "pad"};
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
  Json json = swiglu();
  json["grid"] = {"ceil_div(n, BLOCK * VEC)", 2, "VEC"};
  json["block"] = {"BLOCK / 2", "2"};
  json["shared_memory"] = "BLOCK * 4";
  const Variant variant = variant_of(made(json));
  kernels::LaunchArguments arguments;
  arguments.set_sizes(Sizes{1000});
  const auto shape =
      kernels::launch_shape(variant, *kernels::parse_config("BLOCK=128-VEC=2"), arguments);
  EXPECT_EQ(shape.run.grid_x, 4);
  EXPECT_EQ(shape.run.grid_y, 2);
  EXPECT_EQ(shape.run.grid_z, 2);
  EXPECT_EQ(shape.run.threads, 64);
  EXPECT_EQ(shape.run.threads_y, 2);
  EXPECT_EQ(shape.run.threads_z, 1);
  EXPECT_EQ(shape.run.shared_bytes, 512);
}

TEST(MakeKernelTest, ParametersStandInTheOrderOfTheArguments) {
  Json json = swiglu();
  json["arguments"] = {{"n", "int32"},         {"gate", "in", "T[n]"}, {"eps", "float32"},
                       {"out", "out", "T[n]"}, {"m", "int64"},         {"scale", "float64"}};
  json["key"] = {"T", "bucket(n)", "m"};
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
              HasSubstr("argument `up` has elements of T, which is one of float32, bfloat16, "
                        "float16, the same for every argument of it"));
  EXPECT_FALSE(kernels::is_supported(variant_of(made(swiglu()), ElementType::kFloat64)));
}

struct Refusal {
  const char* what;
  std::function<void(Json&)> change;
  const char* message;
};

TEST(MakeKernelTest, RefusalNamesTheFieldAndWhatIsWrong) {
  const std::vector<Refusal> refusals = {
      {"unknown field", [](Json& j) { j["grids"] = 1; }, "\"grids\" is no field"},
      {"no name", [](Json& j) { j.erase("name"); }, "\"name\" is missing or empty"},
      {"hostile name", [](Json& j) { j["name"] = "a/../b"; }, "\"name\" is \"a/../b\""},
      {"name with a newline", [](Json& j) { j["name"] = "a\nb"; }, "\"name\" is"},
      {"no source", [](Json& j) { j["source"] = ""; }, "\"source\" is missing or empty"},
      {"source of a number", [](Json& j) { j["source"] = 7; }, "\"source\" is no text"},
      {"no such entry", [](Json& j) { j["entry"] = "swish<BLOCK>"; },
       "the source has no kernel `swish`; it has `swiglu`"},
      {"injected entry", [](Json& j) { j["entry"] = "swiglu<1>;\nint x"; }, "\"entry\" is"},
      {"value beyond its type", [](Json& j) { j["arguments"][3] = {"n", "int8", 128}; },
       "int8 is an integer from -128 to 127"},
      {"value of a fraction", [](Json& j) { j["arguments"][3] = {"n", "uint64", 0.5}; },
       "uint64 is an integer from 0 to 9007199254740991"},
      {"key of a value",
       [](Json& j) { j["arguments"].push_back({"s", "int32", 1}), j["key"] = {"n", "s"}; },
       "\"key\" has `s`"},
      {"grid of a value",
       [](Json& j) { j["arguments"].push_back({"s", "int32", 1}), j["grid"] = "s"; },
       "\"grid\": expression \"s\""},
      {"shape of a value",
       [](Json& j) { j["arguments"].push_back({"s", "int32", 1}), j["arguments"][0][2] = "T[s]"; },
       "as something else is"},
      {"scalar of half", [](Json& j) { j["arguments"].push_back({"s", "float16"}); },
       "of kind \"float16\""},
      {"no arguments", [](Json& j) { j["arguments"] = Json::array(); }, "nothing is computed"},
      {"no output", [](Json& j) { j["arguments"][2][1] = "in"; }, "nothing is computed"},
      {"odd kind", [](Json& j) { j["arguments"][0][1] = "input"; }, "of kind \"input\""},
      {"no shape", [](Json& j) { j["arguments"][0] = {"gate", "in"}; }, "without its shape"},
      {"odd shape", [](Json& j) { j["arguments"][0][2] = "T"; }, "write a tensor as"},
      {"empty dimension", [](Json& j) { j["arguments"][0][2] = "T[n, ]"; },
       "a dimension of `gate`"},
      {"unknown type", [](Json& j) { j["arguments"][0][2] = "U[n]"; }, "elements of \"U\""},
      {"type of nobody", [](Json& j) { j["types"]["U"] = {"float32"}; }, "which no tensor has"},
      {"odd type", [](Json& j) { j["types"]["T"] = {"int4"}; }, "has \"int4\" for `T`"},
      {"repeated name", [](Json& j) { j["arguments"][1][0] = "gate"; }, "as something else is"},
      {"word as a name", [](Json& j) { j["arguments"][1][0] = "min"; }, "is called \"min\""},
      {"small letter", [](Json& j) { j["parameters"]["v"] = {1}, j["default"]["v"] = 1; },
       "write `V`"},
      {"no default", [](Json& j) { j["default"].erase("VEC"); }, "has no value for `VEC`"},
      {"odd default", [](Json& j) { j["default"]["VEC"] = 3; }, "none of its values"},
      {"default of nothing", [](Json& j) { j["default"]["VEC"] = "BLOCK"; },
       "\"default\": expression \"BLOCK\""},
      {"default too many", [](Json& j) { j["default"]["X"] = 3; }, "a name that is no parameter"},
      {"large value", [](Json& j) { j["parameters"]["VEC"] = {1, 1LL << 40}; }, "32 bits"},
      {"unknown in grid", [](Json& j) { j["grid"] = "m"; }, "\"grid\": expression \"m\""},
      {"zero division", [](Json& j) { j["block"] = "BLOCK / 0"; }, "it divides by zero"},
      {"four axes", [](Json& j) { j["grid"] = {1, 1, 1, 1}; }, "has not 1 to 3 expressions"},
      {"no grid", [](Json& j) { j.erase("grid"); }, "\"grid\" is missing"},
      {"constraint", [](Json& j) { j["constraint"] = "n %"; }, "\"constraint\": expression"},
      {"deep", [](Json& j) { j["grid"] = std::string(500, '(') + "1"; }, "nested too deep"},
      {"key lacks", [](Json& j) { j["key"] = {"T"}; }, "\"key\" lacks `n`"},
      {"key of nothing", [](Json& j) { j["key"] = {"T", "n", "m"}; }, "\"key\" has `m`"},
      {"bucket of a type", [](Json& j) { j["key"] = {"bucket(T)", "n"}; }, "has no bucket"},
      {"tolerance", [](Json& j) { j["tolerance"] = -1; }, "\"tolerance\" is no number from 0 to 1"},
      {"include path", [](Json& j) { j["options"] = {"-I/etc"}; },
       "\"-I/etc\", which is not served"},
      {"odd target", [](Json& j) { j["options"] = {"--gpu-architecture=compute_90"}; },
       "which is not served"},
      {"bare -D", [](Json& j) { j["options"] = {"-D", "-I/etc"}; }, "\"-D\", which is not served"},
      {"bare --std=", [](Json& j) { j["options"] = {"--std="}; }, "which is not served"},
      {"ptxas file", [](Json& j) { j["options"] = {"--ptxas-options=--options-file=x"}; },
       "which is not served"},
      {"header name", [](Json& j) { j["headers"]["a\"b"] = ""; }, "\"headers\" has a name"},
  };
  for (const Refusal& refusal : refusals) {
    Json json = swiglu();
    refusal.change(json);
    EXPECT_THAT(refusal_of(json), HasSubstr(refusal.message)) << refusal.what;
  }
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
        Json json = swiglu();
        json["name"] = "concurrent_" + std::to_string(k);
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
  Json json = swiglu();
  json["types"]["T"] = "here";
  std::string text = json.dump();
  text.replace(text.find("\"here\""), 6, "[" + deep + "]");
  const auto kernel = make_kernel(text);
  ASSERT_FALSE(kernel);
  EXPECT_THAT(kernel.error().message, HasSubstr("not JSON: line 1, column "));
  EXPECT_THAT(kernel.error().message, HasSubstr("more than 64 levels of brackets"));
  EXPECT_FALSE(make_kernel("{\"grid\": " + deep + "}"));
  EXPECT_FALSE(make_kernel(std::string(Description::kMaxBytes + 1, ' ')));
}

}  // namespace
}  // namespace dorajit::own_kernels
