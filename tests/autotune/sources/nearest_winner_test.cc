#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "autotune/sources/fallback_chain.h"
#include "kernel_templates/spaces.h"
#include "tests/variants.h"

namespace dorajit::autotune {
namespace {

using cache::Winner;
using launch::Problem;

constexpr const char* kH200 = "cuda/NVIDIA H200/sm_90/132 SMs/61440 KiB L2/140 GiB";
constexpr const char* kH100 = "cuda/NVIDIA H100/sm_90/132 SMs/51200 KiB L2/80 GiB";
constexpr const char* kA100 = "cuda/NVIDIA A100/sm_80/108 SMs/40960 KiB L2/80 GiB";

class NearestWinner : public testing::Test {
 protected:
  static Problem problem(std::int64_t rows, std::int64_t cols) {
    return launch::make_problem(tests::float_compose(), kernels::DeviceKind::kCuda, {rows, cols});
  }

  // A winner whose config is number `config` of the space.
  Winner winner(const Problem& problem, std::size_t config, const char* device = kH200) {
    return {.problem = to_text(problem),
            .device = device,
            .environment = {{}, {}, {}, {}, "now"},
            .config = space_.at(config)};
  }

  Seeker seeker(const Problem& problem) const {
    return {.problem = problem, .device = kH200, .templates = "now", .traits = traits_};
  }

  const kernels::SpaceTraits traits_{.kind = kernels::DeviceKind::kCuda, .processors = 132};
  const std::vector<kernels::Config> space_ =
      kernels::config_space(tests::float_compose(), traits_, 8, kernels::SpaceKind::kSlim);
};

TEST_F(NearestWinner, NearestShapeHasTheSmallestDistanceInColumnsAndRowsTogether) {
  const Problem wanted = problem(512, 4096);
  const std::vector<Winner> winners = {winner(problem(512, 16384), 0),
                                       winner(problem(1024, 5120), 1),
                                       winner(problem(4096, 4096), 2)};
  EXPECT_EQ(nearest_shape(winners, seeker(wanted)), &winners[1]);
  EXPECT_EQ(nearest_shape({}, seeker(wanted)), nullptr);
}

TEST_F(NearestWinner, ConfigThatFitsBeatsANearerShape) {
  const Problem wanted = problem(512, 512);
  Winner wide = winner(problem(512, 1024), 0);
  wide.config.set(kernels::kColumnsOfProgram, 1024);
  Winner fitting = winner(problem(512, 4096), 0);
  fitting.config.set(kernels::kColumnsOfProgram, 512);
  fitting.config.set(kernels::kWarps, 2);
  wide.config.set(kernels::kWarps, 2);
  const std::vector<Winner> winners = {wide, fitting};
  EXPECT_EQ(nearest_shape(winners, seeker(wanted)), &winners[1]);
  EXPECT_EQ(nearest_shape(std::span(winners).first(1), seeker(wanted)), winners.data());
}

TEST_F(NearestWinner, WinnersOfOtherVariantsKernelsAndDevicesAreIgnored) {
  const Problem wanted = problem(512, 4096);
  Problem other_types = wanted;
  other_types.variant.types[2] = kernels::ElementType::kBfloat16;
  Winner old = winner(wanted, 0);
  old.environment.templates = "then";
  Winner strange = winner(wanted, 0);
  strange.config.set(kernels::kWarps, 31);
  Winner unreadable = winner(wanted, 0);
  unreadable.problem = "compose/of another version";
  const std::vector<Winner> winners = {winner(other_types, 0), old, strange, unreadable,
                                       winner(wanted, 0, kH100)};
  EXPECT_EQ(nearest_shape(winners, seeker(wanted)), nullptr);
}

TEST_F(NearestWinner, OtherAlignmentClassIsFurtherThanTheNextSize) {
  const Problem wanted = problem(512, 4096);
  Problem misaligned = wanted;
  misaligned.vector_width /= 2;
  const std::vector<Winner> winners = {winner(misaligned, 0), winner(problem(1024, 4096), 1)};
  EXPECT_EQ(nearest_shape(winners, seeker(wanted)), &winners[1]);
}

TEST_F(NearestWinner, NearestDeviceHasTheMostCommonProperties) {
  const Problem wanted = problem(512, 4096);
  const std::vector<Winner> winners = {winner(wanted, 0, kA100), winner(wanted, 1, kH100),
                                       winner(wanted, 2, "cpu/some processor/sm_90/132 SMs"),
                                       winner(problem(512, 8192), 3, kH100)};
  EXPECT_EQ(nearest_device(winners, seeker(wanted)), &winners[1]);
  EXPECT_EQ(nearest_device(std::span(winners).last(2), seeker(wanted)), nullptr);
}

}  // namespace
}  // namespace dorajit::autotune
