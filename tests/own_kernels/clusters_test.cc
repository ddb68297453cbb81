// Own kernels whose launches have clusters or a cooperative grid.
#include <gmock/gmock.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

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
using testing::IsEmpty;

kernels::Variant variant_of(const kernels::Operation& operation) {
  return *own_kernels::variant_of(operation, kernels::ElementType::kFloat32);
}

// Why the default config does not fit 1000 elements on a device with 132 multiprocessors.
std::string why_not(const Json& json, int architecture = 90) {
  const kernels::Variant variant = variant_of(made(json));
  const kernels::SpaceTraits traits{
      .kind = kernels::DeviceKind::kCuda, .processors = 132, .architecture = architecture};
  const Sizes sizes{1000};
  return kernels::template_of(variant).why_config_does_not_fit(
      variant, traits, sizes, kernels::default_config(variant, traits, 8, sizes));
}

Json with_cluster(const Json& cluster, const Json& grid) {
  return with(swiglu(), {{"/cluster", cluster}, {"/grid", grid}});
}

TEST(OwnKernelClusters, LaunchHasTheCluster) {
  const kernels::Variant variant =
      variant_of(made(with_cluster({"VEC", 2}, {"ceil_div(n, BLOCK * VEC) * VEC", 4})));
  kernels::LaunchArguments arguments;
  arguments.set_sizes(Sizes{1000});
  const auto shape =
      kernels::launch_shape(variant, *kernels::parse_config("BLOCK=128-VEC=4"), arguments, 132).run;
  EXPECT_EQ(shape.grid_x, 8);
  EXPECT_THAT((std::array{shape.cluster_x, shape.cluster_y, shape.cluster_z}),
              ElementsAre(4, 2, 1));
  EXPECT_FALSE(shape.is_cooperative);
}

TEST(OwnKernelClusters, ConfigBeyondTheLimitsIsRefused) {
  EXPECT_EQ(why_not(with_cluster({2, 4}, {4, 4})), "");
  EXPECT_THAT(why_not(with_cluster({9}, {9})), "its cluster along x \"9\" is 9; it is 1 to 8");
  EXPECT_THAT(why_not(with_cluster({4, 4}, {4, 4})), "its cluster has more than 8 blocks");
  EXPECT_THAT(why_not(with_cluster({1, "n - 1000"}, {1, 1})),
              HasSubstr("its cluster along y \"n - 1000\" is 0; it is 1 to 8, with n = 1000"));
  EXPECT_THAT(
      why_not(with_cluster("2 * VEC", "n / 8")),
      HasSubstr("its cluster along x \"2 * VEC\" does not divide the grid \"n / 8\" of 125, "
                "with VEC = 1"));
  EXPECT_THAT(why_not(with_cluster("1 / (n - 1000)", "2")), HasSubstr("it divides by zero"));
}

TEST(OwnKernelClusters, DeviceWithoutClustersIsNamed) {
  EXPECT_THAT(why_not(with_cluster(2, 4), 86),
              "its cluster has 2 x 1 x 1 blocks, but devices before compute capability 9.0 have no "
              "clusters, and this one has 8.6");
  EXPECT_EQ(why_not(with_cluster("VEC", 4), 86), "");  // of one block
}

TEST(OwnKernelClusters, SharedMemoryBeyondTheDeviceIsRefused) {
  const auto with_bytes = [](int bytes) { return with(swiglu(), {{"/shared_memory", bytes}}); };
  EXPECT_EQ(why_not(with_bytes(227 << 10)), "");
  EXPECT_EQ(why_not(with_bytes(99 << 10), 86), "");
  EXPECT_EQ(why_not(with_bytes(100 << 10), 86),
            "its shared memory is 102400 bytes, but a block of a device of compute capability 8.6 "
            "has at most 101376");
}

TEST(OwnKernelClusters, CooperativeGridBeyondTheDeviceIsRefused) {
  const auto cooperative = [](const Json& grid, int block, int shared_memory = 0) {
    return why_not(with(swiglu(), {{"/grid", grid},
                                   {"/block", block},
                                   {"/shared_memory", shared_memory},
                                   {"/cooperative", true}}));
  };
  EXPECT_EQ(cooperative("multiprocessors", 1024, 227 << 10), "");
  EXPECT_EQ(cooperative({"multiprocessors", 2}, 1024), "");
  EXPECT_THAT(cooperative({"multiprocessors", 3}, 1024),
              HasSubstr("its cooperative grid has 396 blocks, but the device's 132 multiprocessors "
                        "hold at most 264 of 1024 threads and 0 bytes of shared memory at once; "
                        "take `multiprocessors` for the grid, or smaller blocks"));
  EXPECT_THAT(cooperative({"multiprocessors", 2}, 32, 120 << 10), HasSubstr("hold at most 132 of"));
  EXPECT_THAT(cooperative("multiprocessors * 33", 32),
              HasSubstr("hold at most 4224 of 32 threads"));
  EXPECT_THAT(cooperative({"2147483647", 65535, 65535}, 32), HasSubstr("hold at most 4224"));
}

TEST(OwnKernelClusters, DescriptionIsKeptAsItIs) {
  const Json json = with(with_cluster({2, "VEC"}, {2, 8}), {{"/cooperative", true}});
  const kernels::Operation& operation = made(json);
  EXPECT_EQ(&made(Json::parse(operation.description)), &operation);
  EXPECT_NE(&made(with(json, {{"/cooperative", false}})), &operation);
  // A kernel without them has the name that it had before they were served.
  EXPECT_THAT(
      std::string(made(swiglu()).description),
      testing::AllOf(testing::Not(HasSubstr("cluster")), testing::Not(HasSubstr("cooperative"))));
}

TEST(OwnKernelClusters, WhatIsWrongIsNamed) {
  expect_refusals(swiglu(),
                  {{{{"/cluster", Json::array()}}, "\"cluster\" has not 1 to 3 expressions"},
                   {{{"/cluster", "m"}}, "\"cluster\": expression \"m\""},
                   {{{"/cooperative", 1}}, "\"cooperative\" is neither true nor false"},
                   {{{"/entry", kErased},
                     {"/launches", {{{"entry", "swiglu<1, 1>"}, {"grid", 1}, {"block", 1}}}}},
                    "stands beside \"launches\""},
                   {{{"/launches", {{{"entry", "swiglu<1, 1>"}, {"grid", 1}, {"block", 1}}}},
                     {"/entry", kErased},
                     {"/grid", kErased},
                     {"/block", kErased},
                     {"/shared_memory", kErased},
                     {"/cluster", 2}},
                    "\"cluster\" stands beside \"launches\""}});
}

class OwnKernelClustersTest : public OwnKernelTest {
 protected:
  OwnKernelClustersTest() {
    set_variable("DORAJIT_TUNE", "off");
    attributes().clear();
    result() = 0;
    fake_->launch = [](const char*, const driver::LaunchConfig& config, void**) {
      attributes().assign(config.attributes, config.attributes + config.num_attributes);
      return result();
    };
  }
  static std::vector<driver::LaunchAttribute>& attributes() {
    static std::vector<driver::LaunchAttribute> all;
    return all;
  }
  static int& result() {
    static int value = 0;
    return value;
  }
};

TEST_F(OwnKernelClustersTest, DriverGetsTheAttributes) {
  SwigluCall call(1000);
  ASSERT_EQ(call.run(engine(), create(swiglu())).status, DORAJIT_OK);
  EXPECT_THAT(attributes(), IsEmpty());
  const Json json = with(with_cluster({2, 1, 2}, {4, 1, 2}), {{"/cooperative", true}});
  const auto outcome = call.run(engine(), create(json));
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  ASSERT_EQ(attributes().size(), 2U);
  EXPECT_EQ(attributes()[0].id, driver::kAttributeCooperative);
  EXPECT_EQ(attributes()[0].value.allowed, 1);
  EXPECT_EQ(attributes()[1].id, driver::kAttributeClusterDimension);
  EXPECT_THAT(attributes()[1].value.cluster, ElementsAre(2U, 1U, 2U));
}

// How many registers a thread takes is known to the driver alone.
TEST_F(OwnKernelClustersTest, GridThatTheDriverCannotHoldIsExplained) {
  result() = driver::kCudaErrorCooperativeLaunchTooLarge;
  SwigluCall call(1000);
  const auto outcome =
      call.run(engine(), create(with(swiglu(), {{"/cooperative", true}, {"/block", 512}})));
  EXPECT_EQ(outcome.status, DORAJIT_DRIVER_ERROR);
  EXPECT_THAT(outcome.message,
              HasSubstr("the device cannot hold the 4 blocks of 512 threads of a cooperative grid "
                        "at once: make the grid smaller"));
}

// Both ways of a kernel to know its cluster and its grid.
TEST(OwnKernelClusters, SourceMayUseThem) {
  const auto compiler = nvrtc_here();
  if (!compiler) GTEST_SKIP() << "no NVRTC here: " << compiler.error().message;
  const Json json = with(swiglu(), {{"/source", R"(template <int BLOCK, int VEC>
__global__ void swiglu(const T* gate, const T* up, T* out, long long n) {
  unsigned rank, neighbour;
  __shared__ float first;
  first = gate[0];
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("barrier.cluster.arrive.release.aligned;\n"
               "barrier.cluster.wait.acquire.aligned;" ::: "memory");
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(neighbour)
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(&first))), "r"(rank ^ 1));
  float other;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(other) : "r"(neighbour) : "memory");
  if (threadIdx.x < n) out[threadIdx.x] = other * up[0];
}
)"},
                                    {"/cluster", 2},
                                    {"/cooperative", true}});
  const auto artifact = (*compiler)->compile({.variant = variant_of(made(json)),
                                              .config = *kernels::parse_config("BLOCK=128-VEC=1"),
                                              .target = compile::cuda_target(9, 0)});
  EXPECT_TRUE(artifact) << artifact.error().message << artifact.error().log;
}

}  // namespace
}  // namespace dorajit::tests
