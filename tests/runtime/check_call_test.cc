#include "runtime/launch/check_call.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

namespace dorajit::launch {
namespace {

using enum kernels::ElementType;

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kCols = 8;

class CheckCall : public testing::Test {
 protected:
  CheckCall() {
    for (std::size_t i = 0; i < 4; ++i) {
      memory_[i].resize(kRows * kCols * 4);
      operands_[i] = {.data = memory_[i].data(),
                      .type = kFloat32,
                      .device = {},
                      .rows = i == 2 ? 1 : kRows,
                      .cols = kCols,
                      .row_stride = kCols};
    }
  }

  Result<CheckedCall> check() {
    return check_call(
        {.operation = &kernels::operation("compose"), .operands = operands_, .scalars = scalars_});
  }

  void expect_refused(StatusCode code, const std::string& argument) {
    const auto status = check();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, code) << status.error().message;
    EXPECT_NE(status.error().message.find("`" + argument + "`"), std::string::npos)
        << status.error().message;
  }

  TensorView& lora() { return operands_[0]; }
  TensorView& base() { return operands_[1]; }
  TensorView& gain() { return operands_[2]; }
  TensorView& out() { return operands_[3]; }

  std::array<std::vector<float>, 4> memory_;
  std::array<TensorView, 4> operands_;
  std::array<double, 1> scalars_{1.0};
};

TEST_F(CheckCall, AcceptsOutOfPlaceAndBothInPlaceForms) {
  EXPECT_TRUE(check());
  out() = lora();
  EXPECT_TRUE(check());
  out() = base();
  EXPECT_TRUE(check());
}

TEST_F(CheckCall, AcceptsTheSameTensorAsBothInputs) {
  base() = lora();
  EXPECT_TRUE(check());
}

TEST_F(CheckCall, NullPointerIsNamed) {
  gain().data = nullptr;
  expect_refused(StatusCode::kInvalidArgument, "gain");
}

TEST_F(CheckCall, AcceptsNullPointersOfEmptyTensors) {
  for (TensorView& operand : operands_) {
    operand.data = nullptr;
    if (&operand != &gain()) operand.rows = 0;
  }
  EXPECT_TRUE(check());
}

TEST_F(CheckCall, RefusesDifferentShapes) {
  base().cols = kCols - 1;
  expect_refused(StatusCode::kInvalidArgument, "base");
}

TEST_F(CheckCall, RefusesAGainOfTheWrongLength) {
  gain().cols = kCols - 1;
  expect_refused(StatusCode::kInvalidArgument, "gain");
}

TEST_F(CheckCall, RefusesNegativeSizes) {
  for (TensorView& operand : operands_) operand.cols = -1;
  expect_refused(StatusCode::kInvalidArgument, "lora");
}

TEST_F(CheckCall, RefusesSizesThatOverflow) {
  for (TensorView& operand : operands_) {
    if (&operand != &gain()) operand.rows = std::numeric_limits<std::int64_t>::max() / 2;
  }
  expect_refused(StatusCode::kInvalidArgument, "lora");
}

TEST_F(CheckCall, RefusesRowsThatOverlapEachOther) {
  out().row_stride = kCols - 1;
  expect_refused(StatusCode::kInvalidArgument, "out");
  out().row_stride = -kCols;
  expect_refused(StatusCode::kInvalidArgument, "out");
}

TEST_F(CheckCall, RefusesMisalignedAddresses) {
  lora().data = static_cast<char*>(lora().data) + 2;
  expect_refused(StatusCode::kInvalidArgument, "lora");
}

TEST_F(CheckCall, RefusesTensorsOnDifferentDevices) {
  gain().device.kind = kernels::DeviceKind::kCuda;
  expect_refused(StatusCode::kWrongDevice, "gain");
}

TEST_F(CheckCall, RefusesMixesOfDoubleAndOtherTypes) {
  lora().type = kFloat64;
  const auto status = check();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, StatusCode::kUnsupported);
}

TEST_F(CheckCall, RefusesPartialOverlapAndNamesBothArguments) {
  out().data = static_cast<float*>(lora().data) + 1;
  out().rows = lora().rows = base().rows = kRows - 1;
  const auto status = check();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("`out`"), std::string::npos);
  EXPECT_NE(status.error().message.find("`lora`"), std::string::npos);
}

TEST_F(CheckCall, RefusesAnOutputThatOverlapsTheGain) {
  gain().data = static_cast<float*>(out().data) + kCols;
  expect_refused(StatusCode::kInvalidArgument, "out");
}

TEST_F(CheckCall, RefusesTheSameAddressWithAnotherTypeOrStride) {
  out() = lora();
  out().type = kFloat16;
  expect_refused(StatusCode::kInvalidArgument, "out");
  out() = lora();
  out().row_stride = kCols * 2;
  out().rows = lora().rows = base().rows = 2;
  expect_refused(StatusCode::kInvalidArgument, "out");
}

TEST_F(CheckCall, AcceptsDisjointColumnWindowsOfOneBuffer) {
  std::vector<float> wide(kRows * kCols * 2);
  lora().data = wide.data();
  out().data = wide.data() + kCols;
  lora().row_stride = out().row_stride = kCols * 2;
  EXPECT_TRUE(check());
  std::swap(lora().data, out().data);
  EXPECT_TRUE(check());
  out().data = wide.data() + 1;
  lora().data = wide.data() + kCols;
  expect_refused(StatusCode::kInvalidArgument, "out");
}

TEST_F(CheckCall, AcceptsNonFiniteScales) {
  scalars_[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(check());
}

}  // namespace
}  // namespace dorajit::launch
