// More than 2^31 elements: indices are 64-bit throughout.
#include <array>

#include "kernel_templates/partial_sums.h"
#include "tests/gpu/gpu_fixture.h"

namespace dorajit::tests {
namespace {

using kernels::Broadcast;
using kernels::Variant;
using enum kernels::ElementType;

constexpr std::int64_t kRows = 33000;
constexpr std::int64_t kCols = 65536;
constexpr std::size_t kRowBytes = kCols * 2;
constexpr std::size_t kMatrixBytes = kRows * kRowBytes;
static_assert(kRows * kCols > std::int64_t{1} << 31);

using Row = std::vector<std::uint16_t>;  // of bf16

// A row of one bf16 value, given its bits.
Row row_of(std::uint16_t bits) { return Row(static_cast<std::size_t>(kCols), bits); }

class LargeTensors : public GpuTest {
 protected:
  // Null if the device has too little memory, which skips the test.
  std::byte* allocate(std::size_t bytes, int fill) {
    auto buffer = device_->allocate(bytes);
    if (!buffer) return nullptr;
    EXPECT_TRUE(device_->fill((*buffer)->data(), fill, bytes));
    buffers_.push_back(*std::move(buffer));
    return buffers_.back()->data();
  }

  void set_row(std::byte* matrix, std::int64_t row, const Row& values) {
    ASSERT_TRUE(device_->upload(matrix + static_cast<std::size_t>(row) * kRowBytes, values.data(),
                                kRowBytes));
  }

  Row get_row(const std::byte* matrix, std::int64_t row) {
    Row values(static_cast<std::size_t>(kCols));
    EXPECT_TRUE(device_->download(values.data(), matrix + static_cast<std::size_t>(row) * kRowBytes,
                                  kRowBytes));
    return values;
  }

  void launch(const Variant& variant, const kernels::KernelArguments& arguments) {
    const auto kernel = kernels_->get(*device_, variant,
                                      kernels::default_config(variant, device_->info().traits, 8));
    ASSERT_TRUE(kernel) << kernel.error().message << kernel.error().log;
    ASSERT_TRUE(device_->launch(*kernel->kernel, kernel->config, arguments, device_->own_stream()));
    ASSERT_TRUE(device_->synchronize(device_->own_stream()));
  }

  void check_backward(Broadcast broadcast, std::int64_t channels);

  std::vector<std::unique_ptr<device::Buffer>> buffers_;
};

TEST_F(LargeTensors, ComposeReachesTheLastRow) {
  const Variant variant{.operation = &kernels::operation("compose"),
                        .types = {kBfloat16, kBfloat16, kFloat32, kBfloat16}};
  std::byte* lora = allocate(kMatrixBytes, 0);
  std::byte* base = allocate(kMatrixBytes, 0);
  std::byte* gain = allocate(kCols * 4, 0);
  std::byte* out = allocate(kMatrixBytes, 0xA5);
  if (lora == nullptr || base == nullptr || out == nullptr) {
    GTEST_SKIP() << "needs 13 GB of free device memory";
  }
  // base = 1 in the last row; with gain 0 and lora 0 its result is -1 everywhere.
  set_row(base, kRows - 1, row_of(0x3f80));
  launch(variant, {.sizes = {kRows, kCols, kCols},
                   .workspace = nullptr,
                   .scalars = {1, 0},
                   .operands = {{lora, kCols}, {base, kCols}, {gain, 0}, {out, kCols}}});
  EXPECT_EQ(get_row(out, kRows - 1), row_of(0xbf80));
  for (const std::uint16_t bits : get_row(out, kRows / 2)) ASSERT_EQ(bits & 0x7fffU, 0U);
}

// Matrices of 3 give terms of 9, whose sums are integers below 2^24 times a power of two and
// therefore exact in every order. The last row of d_out is 1, which shows whether it is included.
void LargeTensors::check_backward(Broadcast broadcast, std::int64_t channels) {
  const Variant variant{.operation = &kernels::operation("backward"),
                        .broadcast = broadcast,
                        .types = {kBfloat16, kBfloat16, kFloat32, kBfloat16, kBfloat16, kFloat32}};
  constexpr int kThree = 0x40;  // both bytes of a bf16 3
  std::byte* d_out = allocate(kMatrixBytes, kThree);
  std::byte* inner = allocate(kMatrixBytes, kThree);
  std::byte* d_lora = allocate(kMatrixBytes, 0xA5);
  std::byte* d_base = allocate(kMatrixBytes, 0xA5);
  if (d_out == nullptr || inner == nullptr || d_lora == nullptr || d_base == nullptr) {
    GTEST_SKIP() << "needs 18 GB of free device memory";
  }
  const std::vector<float> twos(static_cast<std::size_t>(channels), 2.0F);
  std::byte* gain = allocate(twos.size() * 4, 0);
  std::byte* d_gain = allocate(twos.size() * 4, 0xA5);
  std::byte* workspace = allocate(static_cast<std::size_t>(kernels::sum_workspace_bytes(
                                      broadcast, kRows, kCols, channels, sizeof(float))),
                                  0xA5);
  ASSERT_TRUE(device_->upload(gain, twos.data(), twos.size() * 4));
  set_row(d_out, kRows - 1, row_of(0x3f80));
  launch(variant, {.sizes = {kRows, kCols, channels},
                   .workspace = workspace,
                   .scalars = {2, 0},
                   .operands = {{d_out, kCols},
                                {inner, kCols},
                                {gain, 0},
                                {d_lora, kCols},
                                {d_base, kCols},
                                {d_gain, 0}}});
  for (const std::int64_t row : {std::int64_t{0}, kRows / 2, kRows - 2}) {
    EXPECT_EQ(get_row(d_lora, row), row_of(0x4140)) << row;  // 12
    EXPECT_EQ(get_row(d_base, row), row_of(0x4040)) << row;
  }
  EXPECT_EQ(get_row(d_lora, kRows - 1), row_of(0x4080));  // 4
  EXPECT_EQ(get_row(d_base, kRows - 1), row_of(0x3f80));
  const bool per_row = broadcast == Broadcast::kPerRow;
  const std::int64_t terms = per_row ? kRows / channels * kCols : kRows;
  std::vector<float> expected(twos.size(), static_cast<float>(9 * terms));
  if (per_row) {
    expected.back() = static_cast<float>(9 * terms - 6 * kCols);
  } else {
    expected.assign(twos.size(), static_cast<float>(9 * terms - 6));
  }
  std::vector<float> sums(twos.size());
  ASSERT_TRUE(device_->download(sums.data(), d_gain, sums.size() * 4));
  EXPECT_TRUE(sums == expected) << sums.front() << " and " << sums.back() << ", not "
                                << expected.front() << " and " << expected.back();
}

TEST_F(LargeTensors, BackwardSumsEveryRowOfEveryColumn) {
  check_backward(Broadcast::kPerColumn, kCols);
}

TEST_F(LargeTensors, BackwardSumsEveryColumnOfEveryRow) {
  check_backward(Broadcast::kPerRow, 1000);
}

}  // namespace
}  // namespace dorajit::tests
