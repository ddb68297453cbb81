// Built-in CPU kernels and GPU kernels on the same inputs; all outputs are compared.
#include "autotune/search/scratch_operands.h"
#include "kernel_templates/config.h"
#include "kernel_templates/sizes.h"
#include "tests/conformance/cpu_kernels.h"
#include "tests/conformance/parallel_for.h"
#include "tests/conformance/variant_lists.h"
#include "tests/gpu/gpu_fixture.h"

namespace dorajit::tests {
namespace {

using autotune::ScratchOperands;
using autotune::ScratchShape;
using kernels::Variant;

class SameBitsAsCpu : public GpuTest {
 protected:
  static Result<std::vector<std::byte>> outputs(device::Device& device,
                                                const launch::ReadyKernel& kernel,
                                                const Variant& variant, const ScratchShape& shape) {
    DORAJIT_ASSIGN(ScratchOperands operands, ScratchOperands::make(device, variant, shape));
    DORAJIT_TRY(
        device.launch(*kernel.kernel, kernel.config, operands.arguments(0), device.own_stream()));
    DORAJIT_TRY(device.synchronize(device.own_stream()));
    return operands.read_outputs(0);
  }

  // With the narrowest and with the widest vectors. On many threads, because compiling takes most
  // of the time.
  void check(const Variants& variants, const ScratchShape& shape) {
    parallel_for(variants.size(), [&](std::size_t i) {
      ScratchShape whole = shape;
      whole.sizes = kernels::with_derived(variants[i], shape.sizes);
      check_one(variants[i], whole);
      whole.vector_width = kernels::widest_vector(variants[i], kernels::DeviceKind::kCuda);
      check_one(variants[i], whole);
    });
  }

  void check_one(const Variant& variant, const ScratchShape& shape) {
    const auto config_for = [&](device::Device& device) {
      return kernels::default_config(variant, device.info().traits, shape.vector_width);
    };
    const auto on_gpu = kernels_->get(*device_, variant, config_for(*device_));
    ASSERT_TRUE(on_gpu) << on_gpu.error().message << on_gpu.error().log;
    const auto on_cpu = builtin_.get(cpu_, variant, config_for(cpu_));
    ASSERT_TRUE(on_cpu) << on_cpu.error().message;
    const auto gpu_bytes = outputs(*device_, *on_gpu, variant, shape);
    const auto cpu_bytes = outputs(cpu_, *on_cpu, variant, shape);
    ASSERT_TRUE(gpu_bytes) << gpu_bytes.error().message;
    ASSERT_TRUE(cpu_bytes) << cpu_bytes.error().message;
    EXPECT_TRUE(*gpu_bytes == *cpu_bytes) << to_text(variant) << " " << to_text(on_gpu->config);
  }

  device::CpuDevice cpu_;
  launch::KernelCache builtin_{without_compiler(), nullptr, statistics_};
};

constexpr std::size_t kSampledMixes = 30;

TEST_F(SameBitsAsCpu, ComposeEqualsForEveryTypeMix) {
  check(in_both_broadcasts(kernels::all_variants(kernels::operation("compose"))),
        {.sizes = {68, 1027}, .seed = 5});
}

TEST_F(SameBitsAsCpu, OtherElementwiseOperationsEqualForSampledMixes) {
  for (const std::string_view op : {"compose_inner", "norm_assembly", "compose_residual"}) {
    check(in_both_broadcasts(sampled_mixes(kernels::operation(op), kSampledMixes)),
          {.sizes = {68, 1027}, .seed = 6});
  }
}

TEST_F(SameBitsAsCpu, BackwardEqualsForEverySubsetOfOutputs) {
  check(in_both_broadcasts(
            with_every_subset(sampled_mixes(kernels::operation("backward"), kSampledMixes))),
        {.sizes = {68, 1027}, .seed = 7});
}

// Many partial sums of both kinds: 16 channels of 257 samples, of two spans each, along the rows.
TEST_F(SameBitsAsCpu, SumsOverMillionsOfTermsAreEqual) {
  check(in_both_broadcasts(plain_mixes(kernels::operation("backward"))),
        {.sizes = {4112, 4133}, .seed = 8});
  check(in_both_broadcasts(with_only_the_sum(plain_mixes(kernels::operation("backward")))),
        {.sizes = {40000, 49}, .seed = 9});
}

}  // namespace
}  // namespace dorajit::tests
