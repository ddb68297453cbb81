// Own kernels of several launches, with a workspace, and with a grid that depends on the device.
#include <gmock/gmock.h>

#include <array>
#include <cstdint>

#include "kernel_templates/sizes.h"
#include "kernel_templates/template.h"
#include "tests/own_kernels/fake_gpu.h"
#include "tests/own_kernels/made_kernels.h"

namespace dorajit::tests {
namespace {

using kernels::Sizes;
using testing::ElementsAre;
using testing::HasSubstr;

// Two launches of the same function, whose last parameter is a workspace.
Json of_two_launches() {
  const Json launch = {
      {"entry", "swiglu<BLOCK, VEC>"}, {"grid", "ceil_div(n, BLOCK * VEC)"}, {"block", "BLOCK"}};
  Json second = launch;
  second["grid"] = "multiprocessors";
  second["shared_memory"] = "4 * BLOCK";
  return with(swiglu(), {{"/entry", kErased},
                         {"/grid", kErased},
                         {"/block", kErased},
                         {"/shared_memory", kErased},
                         {"/launches", {launch, second}},
                         {"/arguments/-", {"scratch", "workspace", "float64[2 * n + 1]"}}});
}

TEST(OwnKernelLaunches, EachHasAGridOfItsOwn) {
  const kernels::Variant variant = variant_of(made(of_two_launches()));
  kernels::LaunchArguments arguments;
  arguments.set_sizes(Sizes{1000});
  const auto shape =
      kernels::launch_shape(variant, *kernels::parse_config("BLOCK=128-VEC=2"), arguments, 132);
  EXPECT_EQ(shape.run.grid_x, 4);
  EXPECT_EQ(shape.run.shared_bytes, 0);
  EXPECT_EQ(shape.later[0].grid_x, 132);
  EXPECT_EQ(shape.later[0].threads, 128);
  EXPECT_EQ(shape.later[0].shared_bytes, 512);
  EXPECT_EQ(shape.later[1].programs(), 0);
}

TEST(OwnKernelLaunches, WorkspaceDependsOnTheSizes) {
  const kernels::Variant variant = variant_of(made(of_two_launches()));
  EXPECT_EQ(kernels::workspace_bytes(variant, kernels::DeviceKind::kCuda, Sizes{1000}), 8 * 2001);
  const kernels::Template& used = kernels::template_of(variant);
  const kernels::Config config = *kernels::parse_config("BLOCK=128-VEC=1");
  EXPECT_EQ(used.why_config_does_not_fit(variant, kHopper, Sizes{1000}, config), "");
  const kernels::Variant none =
      variant_of(made(with(of_two_launches(), {{"/arguments/4/2", "float32[n - 1000]"}})));
  EXPECT_THAT(used.why_config_does_not_fit(none, kHopper, Sizes{1000}, config),
              HasSubstr("its workspace of \"n - 1000\" elements is not 1 to 2^48, with n = 1000"));
}

TEST(OwnKernelLaunches, ConstraintMayDependOnTheDevice) {
  const kernels::Variant variant =
      variant_of(made(with(swiglu(), {{"/constraint", "BLOCK * multiprocessors <= 128 * 132"}})));
  const kernels::Template& used = kernels::template_of(variant);
  const auto why = [&](int block) {
    kernels::Config config = *kernels::parse_config("BLOCK=64-VEC=1");
    config.set(kernels::Mark("BLOCK"), block);
    return used.why_config_does_not_fit(variant, kHopper, Sizes{1000}, config);
  };
  EXPECT_EQ(why(128), "");
  EXPECT_THAT(why(256), HasSubstr("does not hold, with BLOCK = 256, multiprocessors = 132"));
}

TEST(OwnKernelLaunches, DescriptionIsKeptAsItIs) {
  const kernels::Operation& operation = made(of_two_launches());
  EXPECT_EQ(&made(Json::parse(operation.description)), &operation);
}

TEST(OwnKernelLaunches, WhatIsWrongIsNamed) {
  const Json two = of_two_launches();
  expect_refusals(
      two,
      {{{{"/entry", "swiglu<BLOCK, VEC>"}}, "\"entry\" stands beside \"launches\""},
       {{{"/launches", Json::array()}}, "\"launches\" is no list of 1 to 4 objects"},
       {{{"/launches/1", "swiglu"}}, "\"launches\" has what is no object"},
       {{{"/launches/1/stream", 1}}, "\"launches\" has the field \"stream\"; there are entry"},
       {{{"/launches/1/grid", kErased}}, "\"grid\" is missing"},
       {{{"/launches/1/entry", "other<BLOCK>"}}, "the source has no kernel `other`"},
       {{{"/arguments/4/2", "float32[m]"}}, "the workspace `scratch`: "},
       {{{"/arguments/4/2", "T[n]"}}, "the workspace `scratch` has elements of \"T\""},
       {{{"/arguments/4/2", "float32"}}, "write a tensor as \"T[n, m]\""},
       {{{"/arguments/-", {"more", "workspace", "float32[n]"}}}, "`more` is a second workspace"},
       {{{"/parameters/multiprocessors", {1}}, {"/default/multiprocessors", 1}},
        "which is the number of the device's multiprocessors"}});
}

class OwnKernelLaunchesTest : public OwnKernelTest {
 protected:
  OwnKernelLaunchesTest() { set_variable("DORAJIT_TUNE", "off"); }

  bindings::Outcome run(SwigluCall& call, const dorajit_operation* kernel, void* workspace,
                        std::int64_t bytes) {
    const double n = static_cast<double>(call.n);
    return bindings::outcome_of([&](dorajit_error** error) {
      return dorajit_launch(engine(), nullptr, kernel, call.describe()->pointers, 3, &n, 1,
                            workspace, bytes, error);
    });
  }
};

TEST_F(OwnKernelLaunchesTest, AreMadeInTheirOrder) {
  const auto* const kernel = create(of_two_launches());
  SwigluCall call(1000);
  const double n = 1000;
  std::int64_t bytes = 0;
  ASSERT_EQ(dorajit_kernel_workspace(kernel, call.describe()->pointers, 3, &n, 1, &bytes, nullptr),
            DORAJIT_OK);
  EXPECT_EQ(bytes, 16008);
  alignas(16) static std::array<std::byte, 16008> workspace;
  const auto outcome = run(call, kernel, workspace.data(), bytes);
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  EXPECT_TRUE(call.is_right());
  ASSERT_EQ(launches().size(), 2U);
  EXPECT_THAT((std::array{launches()[0].grid, launches()[0].shared_bytes}), ElementsAre(4U, 0U));
  EXPECT_EQ(launches()[1].shared_bytes, 1024U);
  EXPECT_EQ(launches()[1].entry, "swiglu<256, 1>");
}

TEST_F(OwnKernelLaunchesTest, WorkspaceThatIsMissingIsRefused) {
  const auto* const kernel = create(of_two_launches());
  SwigluCall call(1000);
  bindings::expect_refusal(run(call, kernel, nullptr, 0),
                           "swiglu: `workspace` has 0 bytes but 16008 are needed; ask");
  EXPECT_TRUE(launches().empty());
}

}  // namespace
}  // namespace dorajit::tests
