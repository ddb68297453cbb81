// The second stage of a sum is launched before the first has finished. It must wait for the first
// stage, and the next call must wait for both.
#include <gtest/gtest.h>

#include "autotune/search/scratch_operands.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "tests/conformance/variant_lists.h"
#include "tests/gpu/gpu_fixture.h"

namespace dorajit::tests {
namespace {

using autotune::ScratchOperands;
using autotune::ScratchShape;

constexpr int kCalls = 100;

class DependentLaunch : public GpuTest {
 protected:
  // The sums of calls that each scale their own input in place, so that every sum differs; all use
  // one workspace.
  std::vector<float> sums_of_chain(const ScratchShape& shape, kernels::Broadcast broadcast,
                                   bool one_by_one) {
    kernels::Variant variant = plain_mixes(kernels::operation("backward"))[0];
    variant.broadcast = broadcast;
    auto operands = ScratchOperands::make(*device_, variant, shape);
    const auto kernel =
        kernels_->get(*device_, variant,
                      kernels::default_config(variant, device_->info().traits, shape.vector_width));
    const auto channels = static_cast<std::size_t>(shape.sizes[kernels::kChannels]);
    auto sums = device_->allocate(kCalls * channels * sizeof(float));
    EXPECT_TRUE(operands && kernel && sums);
    EXPECT_TRUE(device_->fill((*sums)->data(), 0xA5, (*sums)->size()));

    kernels::KernelArguments arguments = operands->arguments(0);
    arguments.operands[3].data = arguments.operands[0].data;  // d_lora over d_out
    const auto call = [&](std::size_t number, device::Stream stream) {
      arguments.operands[5].data = (*sums)->data() + number * channels * sizeof(float);
      return device_->launch(*kernel->kernel, kernel->config, arguments, stream);
    };
    const auto nothing = [](device::Stream) { return Status{}; };
    if (one_by_one) {
      for (std::size_t i = 0; i < kCalls; ++i) {
        EXPECT_TRUE(call(i, device_->own_stream()));
        EXPECT_TRUE(device_->synchronize(device_->own_stream()));
      }
    } else {  // in one graph, where no wait for the CPU keeps the launches apart
      EXPECT_TRUE(device_->time_ns(nothing, [&](device::Stream stream) -> Status {
        for (std::size_t i = 0; i < kCalls; ++i) DORAJIT_TRY(call(i, stream));
        return {};
      }));
    }
    std::vector<float> result(kCalls * channels);
    EXPECT_TRUE(device_->download(result.data(), (*sums)->data(), (*sums)->size()));
    return result;
  }

  void check(const ScratchShape& shape, kernels::Broadcast broadcast) {
    EXPECT_TRUE(sums_of_chain(shape, broadcast, false) == sums_of_chain(shape, broadcast, true));
  }
};

TEST_F(DependentLaunch, SecondStagePerColumnWaitsForTheFirstStage) {
  check({.sizes = {2048, 512, 512}, .vector_width = 4}, kernels::Broadcast::kPerColumn);
  check({.sizes = {8192, 4096, 4096}, .vector_width = 4}, kernels::Broadcast::kPerColumn);
}

TEST_F(DependentLaunch, SecondStagePerRowWaitsForTheFirstStage) {
  check({.sizes = {131072, 48, 256}, .vector_width = 4}, kernels::Broadcast::kPerRow);
}

}  // namespace
}  // namespace dorajit::tests
