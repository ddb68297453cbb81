// What check_call refuses of views that no caller of the C interface can pass: the tests of
// bindings/c have the other calls.
#include "runtime/launch/check_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "kernel_templates/partial_sums.h"
#include "kernel_templates/sizes.h"

namespace dorajit::launch {
namespace {

using enum kernels::ElementType;
using kernels::Broadcast;
using testing::HasSubstr;

constexpr std::int64_t kRows = 600;  // three partial sums per column
constexpr std::int64_t kCols = 8;

// Calls of backward.
class CheckCall : public testing::Test {
 protected:
  CheckCall() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const bool is_matrix = i != 2 && i != 5;
      memory_[i].resize(kRows * kCols);
      operands_[i] = {.data = memory_[i].data(),
                      .type = kFloat32,
                      .device = {},
                      .rows = is_matrix ? kRows : 1,
                      .cols = kCols,
                      .row_stride = kCols};
    }
    call_.workspace = workspace_.data();
    call_.workspace_bytes =
        kernels::sum_workspace_bytes(Broadcast::kPerColumn, kRows, kCols, kCols, 4);
    call_.operands = operands_;
    call_.scalars = scalars_;
  }

  // A row is one channel of one sample.
  void lay_channels_along_the_rows(std::int64_t channels) {
    call_.broadcast = Broadcast::kPerRow;
    gain().cols = d_gain().cols = channels;
  }

  void expect_accepted() {
    const auto status = check_call(call_);
    EXPECT_TRUE(status) << status.error().message;
  }

  void expect_refused(const std::string& part, const std::string& other = "") {
    const auto status = check_call(call_);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, StatusCode::kInvalidArgument) << status.error().message;
    EXPECT_THAT(status.error().message, HasSubstr(part));
    EXPECT_THAT(status.error().message, HasSubstr(other));
  }

  TensorView& d_out() { return operands_[0]; }
  TensorView& gain() { return operands_[2]; }
  TensorView& d_gain() { return operands_[5]; }

  std::array<std::vector<float>, 6> memory_;
  std::array<TensorView, 6> operands_;
  std::vector<float> workspace_ = std::vector<float>(100);
  std::array<double, 1> scalars_{1.0};
  Call call_{.operation = &kernels::operation("backward"), .operands = {}, .scalars = {}};
};

TEST_F(CheckCall, MissingRequiredOperandIsNamed) {
  for (const auto& [operand, name] : {std::pair(&d_out(), "`d_out`"), {&gain(), "`gain`"}}) {
    const TensorView kept = *operand;
    *operand = {.type = kAbsent, .device = {}};
    expect_refused(name, "is missing");
    *operand = kept;
  }
}

TEST_F(CheckCall, RefusesNegativeSizes) {
  for (TensorView& operand : operands_) operand.cols = -1;
  expect_refused("`d_out`");
}

TEST_F(CheckCall, RefusesASumOfSeveralRowsOrOfAnotherLength) {
  d_gain().rows = 2;
  expect_refused("`d_gain`");
  d_gain().rows = 1;
  lay_channels_along_the_rows(6);
  d_gain().cols = 12;
  expect_refused("`d_gain`", "6 channels");
}

TEST_F(CheckCall, WorkspaceMayEndWhereAnOperandBegins) {
  constexpr std::ptrdiff_t kFloatsOfWorkspace = 3 * kCols;
  ASSERT_EQ(call_.workspace_bytes, kFloatsOfWorkspace * 4);
  gain().data = workspace_.data() + kFloatsOfWorkspace - 4;
  expect_refused("`workspace`", "`gain`");
  gain().data = workspace_.data() + kFloatsOfWorkspace;
  expect_accepted();
}

TEST_F(CheckCall, ChannelsAlongTheRowsDivideThem) {
  lay_channels_along_the_rows(150);
  expect_accepted();
  EXPECT_EQ(check_call(call_)->sizes[kernels::kChannels], 150);
  lay_channels_along_the_rows(151);
  expect_refused("`gain`", "600 rows");
  expect_refused("`gain`", "not a multiple");
  for (const std::int64_t channels : {0, 1200}) {
    lay_channels_along_the_rows(channels);
    expect_refused("`gain`");
  }
}

TEST_F(CheckCall, OperationWithoutChannelsHasNoPerRowForm) {
  gain() = operands_[1];
  const auto status = check_call({.operation = &kernels::operation("norm_assembly"),
                                  .broadcast = Broadcast::kPerRow,
                                  .operands = std::span(operands_).first(4),
                                  .scalars = scalars_});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::Not(HasSubstr("f64")));
}

}  // namespace
}  // namespace dorajit::launch
