// The kernel that compares sets of operands on a GPU.
#include "autotune/search/set_difference.h"

#include <limits>
#include <optional>
#include <vector>

#include "kernel_templates/reference.h"
#include "tests/gpu/gpu_fixture.h"

namespace dorajit::tests {
namespace {

using autotune::ScratchOperands;
using autotune::SetDifference;
using enum ScratchOperands::Closeness;
using enum ScratchOperands::Difference;
using enum kernels::ElementType;

class SetDifferenceTest : public GpuTest {
 protected:
  // Three sets of equal operands, of an operation with a tolerance. The lengths are no multiples of
  // what a block compares.
  void make(kernels::ElementType type) {
    const kernels::Variant variant{
        .operation = &kernels::operation("compose_low_rank"),
        .types = {kBfloat16, kBfloat16, type, kFloat32, kAbsent, type, kAbsent}};
    auto made = ScratchOperands::make(*device_, variant,
                                      {.sizes = {301, 103, 4}, .sets = 3, .guard_bytes = 4096});
    ASSERT_TRUE(made) << made.error().message;
    operands_.emplace(*std::move(made));
    auto difference = SetDifference::make(*device_, *kernels_);
    ASSERT_TRUE(difference) << difference.error().message;
    difference_.emplace(*std::move(difference));
    for (const auto& part : operands_->parts()) {
      if (!part.output) continue;
      output_ = part;
      type_ = type;
      for (const std::int64_t set : {0, 1}) {
        std::vector<std::byte> bytes(part.bytes);
        for (std::size_t i = 0; i < elements(); ++i) put(bytes, i, 1.0);
        upload(set, part.offset, bytes);
      }
    }
  }

  [[nodiscard]] std::size_t elements() const {
    return output_.bytes / static_cast<std::size_t>(kernels::size_in_bytes(type_));
  }
  void put(std::vector<std::byte>& bytes, std::size_t i, double value) const {
    const kernels::OperandArgument place{.data = bytes.data(), .row_stride = 0};
    kernels::store_element(place, type_, 0, static_cast<long long>(i), value);
  }
  void upload(std::int64_t set, std::size_t offset, const std::vector<std::byte>& bytes) {
    ASSERT_TRUE(device_->upload(operands_->data(set) + offset, bytes.data(), bytes.size()));
  }
  // Changes the last element of the output of set 0.
  void set_last(double value) {
    std::vector<std::byte> bytes(output_.bytes);
    for (std::size_t i = 0; i < elements(); ++i) put(bytes, i, 1.0);
    put(bytes, elements() - 1, value);
    upload(0, output_.offset, bytes);
  }

  ScratchOperands::Difference find(ScratchOperands::Closeness closeness) {
    const auto usual = operands_->usual_sizes(1);
    EXPECT_TRUE(usual);
    const auto found = difference_->find(*operands_, 0, 1, closeness, *usual);
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or(kElsewhere);
  }

  std::optional<ScratchOperands> operands_;
  std::optional<SetDifference> difference_;
  ScratchOperands::Part output_{};
  kernels::ElementType type_ = kFloat32;
};

TEST_F(SetDifferenceTest, LastElementIsComparedInEveryType) {
  for (const auto type : {kFloat32, kBfloat16, kFloat16}) {
    SCOPED_TRACE(kernels::name(type));
    make(type);
    EXPECT_EQ(find(kBitForBit), kNone);
    EXPECT_EQ(find(kWithinTolerance), kNone);
    // One rounding step of f16, and less than the tolerance of f32.
    set_last(type == kFloat32 ? 1.0 + 0x1p-22 : type == kFloat16 ? 1.0 + 0x1p-10 : 1.0 + 0x1p-7);
    EXPECT_EQ(find(kBitForBit), kOutputs);
    EXPECT_EQ(find(kWithinTolerance), kNone);
    set_last(1.25);
    EXPECT_EQ(find(kWithinTolerance), kOutputs);
    set_last(std::numeric_limits<double>::quiet_NaN());
    EXPECT_EQ(find(kWithinTolerance), kOutputs);
  }
}

TEST_F(SetDifferenceTest, ByteOutsideTheOutputsIsFound) {
  make(kFloat32);
  const std::vector<std::byte> byte(1, std::byte{0x5A});
  upload(0, output_.offset + output_.bytes, byte);
  EXPECT_EQ(find(kWithinTolerance), kElsewhere);
  upload(0, output_.offset + output_.bytes, std::vector<std::byte>(1, std::byte{0xA5}));
  EXPECT_EQ(find(kBitForBit), kNone);
  upload(0, 0, byte);
  EXPECT_EQ(find(kBitForBit), kElsewhere);
}

}  // namespace
}  // namespace dorajit::tests
