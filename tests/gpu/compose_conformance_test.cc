// compose on an NVIDIA GPU: every bit, for every type mix and config, and the same bits as the CPU.
#include "tests/conformance/compose_conformance.h"

#include <cstring>

#include "autotune/scratch_operands.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/gpu/gpu_fixture.h"

namespace dorajit::tests {
namespace {

class ComposeOnGpu : public GpuTest {};

TEST_F(ComposeOnGpu, EveryConfigOfTheComprehensiveSpaceMatchesThePlainReference) {
  const auto failures = check_compose(*device_, *kernels_, widest_compose_variants(),
                                      kernels::SpaceKind::kComprehensive);
  EXPECT_TRUE(failures.empty()) << join(failures);
}

TEST_F(ComposeOnGpu, EveryTypeMixMatchesThePlainReferenceWithEveryConfig) {
  const auto failures = check_compose(
      *device_, *kernels_, kernels::all_variants(kernels::Op::kCompose), kernels::SpaceKind::kSlim);
  EXPECT_TRUE(failures.empty()) << join(failures);
}

// The library's own CPU kernels on the very inputs, whole outputs compared.
TEST_F(ComposeOnGpu, GivesTheSameBitsAsTheCpu) {
  device::CpuDevice cpu;
  for (const kernels::Variant& variant : kernels::all_variants(kernels::Op::kCompose)) {
    const autotune::ScratchShape shape{.rows = 67, .cols = 1027, .seed = 5};
    auto on_gpu = autotune::ScratchOperands::make(*device_, variant, shape);
    auto on_cpu = autotune::ScratchOperands::make(cpu, variant, shape);
    ASSERT_TRUE(on_gpu && on_cpu);
    const auto kernel = kernels_->get(*device_, variant,
                                      kernels::default_config(variant, device_->info().traits, 1));
    ASSERT_TRUE(kernel) << kernel.error().message;
    ASSERT_TRUE(device_->launch(*kernel->kernel, kernel->config, on_gpu->arguments(0),
                                device_->own_stream()));
    ASSERT_TRUE(device_->synchronize(device_->own_stream()));
    kernels::Config builtin = kernels::builtin_cpu_config();
    ASSERT_TRUE(cpu.launch(*device::CpuDevice::wrap(kernels::builtin_cpu_kernel(variant)), builtin,
                           on_cpu->arguments(0), nullptr));
    EXPECT_EQ(on_gpu->read_outputs(0), on_cpu->read_outputs(0)) << to_text(variant);
  }
}

// More than 2^31 elements, with the last row checked: indices are 64-bit throughout.
TEST_F(ComposeOnGpu, CoversMoreElementsThan32BitsCount) {
  using enum kernels::ElementType;
  const kernels::Variant variant{.op = kernels::Op::kCompose,
                                 .types = {kBfloat16, kBfloat16, kFloat32, kBfloat16}};
  const std::int64_t cols = 65536;
  const std::int64_t rows = 33000;
  const std::size_t row_bytes = static_cast<std::size_t>(cols) * 2;
  const std::size_t bytes = static_cast<std::size_t>(rows) * row_bytes;
  ASSERT_GT(rows * cols, std::int64_t{1} << 31);
  auto lora = device_->allocate(bytes);
  auto base = device_->allocate(bytes);
  auto gain = device_->allocate(static_cast<std::size_t>(cols) * 4);
  auto out = device_->allocate(bytes);
  if (!lora || !base || !gain || !out) GTEST_SKIP() << "needs 13 GB of free device memory";
  ASSERT_TRUE(device_->fill((*lora)->data(), 0, bytes));
  ASSERT_TRUE(device_->fill((*base)->data(), 0, bytes));
  ASSERT_TRUE(device_->fill((*gain)->data(), 0, static_cast<std::size_t>(cols) * 4));
  ASSERT_TRUE(device_->fill((*out)->data(), 0xA5, bytes));
  // base = 1 in the last row; with gain 0 and lora 0 its result is -1 everywhere.
  const std::vector<std::uint16_t> ones(static_cast<std::size_t>(cols), 0x3f80);
  ASSERT_TRUE(device_->upload((*base)->data() + bytes - row_bytes, ones.data(), row_bytes));
  const auto kernel =
      kernels_->get(*device_, variant, kernels::default_config(variant, device_->info().traits, 8));
  ASSERT_TRUE(kernel) << kernel.error().message;
  kernels::KernelArguments arguments{.num_rows = rows,
                                     .num_cols = cols,
                                     .scalars = {1, 0},
                                     .operands = {{(*lora)->data(), cols},
                                                  {(*base)->data(), cols},
                                                  {(*gain)->data(), 0},
                                                  {(*out)->data(), cols}}};
  ASSERT_TRUE(device_->launch(*kernel->kernel, kernel->config, arguments, device_->own_stream()));
  ASSERT_TRUE(device_->synchronize(device_->own_stream()));
  std::vector<std::uint16_t> last(static_cast<std::size_t>(cols));
  ASSERT_TRUE(device_->download(last.data(), (*out)->data() + bytes - row_bytes, row_bytes));
  EXPECT_EQ(last, std::vector<std::uint16_t>(static_cast<std::size_t>(cols), 0xbf80));
  ASSERT_TRUE(device_->download(last.data(), (*out)->data() + bytes / 2, row_bytes));
  for (const std::uint16_t bits : last) ASSERT_EQ(bits & 0x7fffU, 0U);
}

}  // namespace
}  // namespace dorajit::tests
