// Refused calls with a sum, with absent operands and with a workspace.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "kernel_templates/partial_sums.h"
#include "kernel_templates/sizes.h"
#include "runtime/launch/check_call.h"

namespace dorajit::launch {
namespace {

using enum kernels::ElementType;
using kernels::Broadcast;

constexpr std::int64_t kRows = 600;  // three partial sums per column
constexpr std::int64_t kCols = 8;

class CheckBackwardCall : public testing::Test {
 protected:
  static constexpr std::size_t kOperands = 6;

  CheckBackwardCall() {
    for (std::size_t i = 0; i < kOperands; ++i) {
      const bool is_matrix = i != 2 && i != 5;
      memory_[i].resize(kRows * kCols);
      operands_[i] = {.data = memory_[i].data(),
                      .type = kFloat32,
                      .device = {},
                      .rows = is_matrix ? kRows : 1,
                      .cols = kCols,
                      .row_stride = kCols};
    }
    set_workspace(kernels::sum_workspace_bytes(Broadcast::kPerColumn, kRows, kCols, kCols, 4));
  }

  void set_workspace(std::int64_t bytes) {
    workspace_.assign(static_cast<std::size_t>(bytes / 4) + 16, 0.0F);
    call_.workspace = workspace_.data();
    call_.workspace_bytes = bytes;
  }

  // Four samples of a few channels each; a row is one channel of one sample.
  void lay_channels_along_the_rows(std::int64_t channels) {
    call_.broadcast = Broadcast::kPerRow;
    gain().cols = d_gain().cols = channels;
  }

  static void leave_out(TensorView& operand) { operand = {.type = kAbsent, .device = {}}; }

  Result<CheckedCall> check() {
    call_.operands = operands_;
    call_.scalars = scalars_;
    return check_call(call_);
  }

  void expect_accepted() {
    const auto status = check();
    EXPECT_TRUE(status) << status.error().message;
  }

  void expect_refused(std::initializer_list<const char*> mentions) {
    const auto status = check();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, StatusCode::kInvalidArgument) << status.error().message;
    for (const char* mention : mentions) {
      EXPECT_NE(status.error().message.find(mention), std::string::npos) << status.error().message;
    }
  }

  TensorView& d_out() { return operands_[0]; }
  TensorView& inner() { return operands_[1]; }
  TensorView& gain() { return operands_[2]; }
  TensorView& d_lora() { return operands_[3]; }
  TensorView& d_base() { return operands_[4]; }
  TensorView& d_gain() { return operands_[5]; }

  std::array<std::vector<float>, kOperands> memory_;
  std::array<TensorView, kOperands> operands_;
  std::vector<float> workspace_;
  std::array<double, 1> scalars_{1.0};
  Call call_{.operation = &kernels::operation("backward"), .operands = {}, .scalars = {}};
};

TEST_F(CheckBackwardCall, AcceptsEveryNonemptyCombinationOfOutputs) {
  const auto all = operands_;
  for (unsigned wanted = 1; wanted < 8; ++wanted) {
    operands_ = all;
    if ((wanted & 1) == 0) leave_out(d_lora());
    if ((wanted & 2) == 0) leave_out(d_base());
    if ((wanted & 4) == 0) leave_out(d_gain());
    if ((wanted & 4) == 0) leave_out(inner());
    expect_accepted();
  }
  for (TensorView* output : {&d_lora(), &d_base(), &d_gain()}) leave_out(*output);
  expect_refused({"backward", "every output is left out"});
}

TEST_F(CheckBackwardCall, MissingInnerOfASumIsNamed) {
  leave_out(inner());
  expect_refused({"`inner`", "`d_gain`"});
}

TEST_F(CheckBackwardCall, InnerIsNotCheckedWithoutASum) {
  leave_out(d_gain());
  inner().data = nullptr;
  inner().cols = 1;
  inner().type = kFloat64;
  const auto checked = check();
  ASSERT_TRUE(checked) << checked.error().message;
  EXPECT_FALSE(checked->variant.has(1));
}

TEST_F(CheckBackwardCall, MissingRequiredOperandIsNamed) {
  for (const auto& [operand, name] :
       {std::pair(&d_out(), "`d_out`"), std::pair(&gain(), "`gain`")}) {
    const TensorView kept = *operand;
    leave_out(*operand);
    expect_refused({name, "is missing"});
    *operand = kept;
  }
}

TEST_F(CheckBackwardCall, RefusesASumOfTheWrongLength) {
  d_gain().cols = kCols - 1;
  expect_refused({"`d_gain`"});
  d_gain().cols = kCols;
  d_gain().rows = 2;
  expect_refused({"`d_gain`"});
  lay_channels_along_the_rows(6);
  d_gain().rows = 1;
  d_gain().cols = 12;
  expect_refused({"`d_gain`", "6 channels"});
}

TEST_F(CheckBackwardCall, AcceptsOutputsInPlaceOfTwoDifferentInputs) {
  d_lora() = d_out();
  d_base() = inner();
  expect_accepted();
  std::swap(d_lora(), d_base());
  expect_accepted();
}

TEST_F(CheckBackwardCall, RefusesTwoOutputsOnTheSameMemory) {
  d_base() = d_lora();
  expect_refused({"`d_lora`", "`d_base`", "memory of its own"});
  d_lora() = d_base() = d_out();
  expect_refused({"`d_lora`", "`d_base`", "memory of its own"});
}

TEST_F(CheckBackwardCall, RefusesASumThatOverlapsAnotherOperand) {
  for (const auto& [operand, name] :
       {std::pair(&d_out(), "`d_out`"), std::pair(&inner(), "`inner`"),
        std::pair(&gain(), "`gain`"), std::pair(&d_lora(), "`d_lora`"),
        std::pair(&d_base(), "`d_base`")}) {
    d_gain().data = operand->data;
    expect_refused({"`d_gain`", name, "memory of its own"});
  }
}

TEST_F(CheckBackwardCall, RefusesAMatrixOutputOverTheGain) {
  d_base().data = gain().data;
  expect_refused({"`d_base`", "`gain`"});
}

TEST_F(CheckBackwardCall, ErrorContainsTheRequiredWorkspaceSize) {
  const std::int64_t needed = call_.workspace_bytes;
  ASSERT_EQ(needed, 3 * kCols * 4);
  call_.workspace_bytes = needed - 1;
  expect_refused({"`workspace`", "95 bytes", "96 are needed", "dorajit_operation_workspace"});
  call_.workspace_bytes = needed + 1;
  expect_accepted();
  call_.workspace = nullptr;
  expect_refused({"`workspace`", "0 bytes"});
}

TEST_F(CheckBackwardCall, SinglePartialSumOrNoSumNeedsNoWorkspace) {
  call_.workspace = nullptr;
  call_.workspace_bytes = 0;
  for (TensorView* matrix : {&d_out(), &inner(), &d_lora(), &d_base()}) matrix->rows = 256;
  expect_accepted();
  for (TensorView* matrix : {&d_out(), &inner(), &d_lora(), &d_base()}) matrix->rows = 257;
  expect_refused({"`workspace`"});
  leave_out(d_gain());
  expect_accepted();
}

TEST_F(CheckBackwardCall, RefusesAMisalignedWorkspace) {
  call_.workspace = workspace_.data() + 2;
  expect_refused({"`workspace`", "aligned to 16 bytes"});
}

TEST_F(CheckBackwardCall, RefusesAWorkspaceThatOverlapsAnOperand) {
  const char* names[] = {"`d_out`", "`inner`", "`gain`", "`d_lora`", "`d_base`", "`d_gain`"};
  for (std::size_t i = 0; i < kOperands; ++i) {
    call_.workspace = operands_[i].data;
    expect_refused({"`workspace`", names[i]});
  }
  // Overlaps only the last bytes of the operand.
  constexpr std::ptrdiff_t kFloatsBefore = 20;
  gain().data = workspace_.data() + kFloatsBefore;
  call_.workspace = workspace_.data();
  expect_refused({"`workspace`", "`gain`"});
  gain().data = workspace_.data() + call_.workspace_bytes / 4;
  expect_accepted();
}

TEST_F(CheckBackwardCall, RefusesAGainPerRowThatDoesNotDivideTheRows) {
  lay_channels_along_the_rows(150);
  expect_accepted();
  lay_channels_along_the_rows(151);
  expect_refused({"`gain`", "600 rows", "not a multiple"});
  lay_channels_along_the_rows(0);
  expect_refused({"`gain`"});
  lay_channels_along_the_rows(1200);
  expect_refused({"`gain`"});
}

TEST_F(CheckBackwardCall, NumberOfChannelsIsThatOfTheGain) {
  const auto channels = [this] {
    expect_accepted();
    return check()->sizes[kernels::kChannels];
  };
  EXPECT_EQ(channels(), kCols);
  lay_channels_along_the_rows(150);
  EXPECT_EQ(channels(), 150);
}

TEST_F(CheckBackwardCall, EmptyTensorsNeedMemoryOnlyForTheSum) {
  for (TensorView* matrix : {&d_out(), &inner(), &d_lora(), &d_base()}) {
    matrix->rows = 0;
    matrix->data = nullptr;
  }
  gain().data = nullptr;
  call_.workspace = nullptr;
  call_.workspace_bytes = 0;
  expect_accepted();
  d_gain().data = nullptr;
  expect_refused({"`d_gain`", "is null"});
}

TEST_F(CheckBackwardCall, OperationWithoutChannelsHasNoPerRowForm) {
  gain() = inner();
  const auto status = check_call({.operation = &kernels::operation("norm_assembly"),
                                  .broadcast = Broadcast::kPerRow,
                                  .operands = std::span(operands_).first(4),
                                  .scalars = scalars_});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message.find("f64"), std::string::npos) << status.error().message;
}

}  // namespace
}  // namespace dorajit::launch
