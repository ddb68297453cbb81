// An operation with its own dimensions, template, second stage and workspace, two scalars and no
// formula: through the C interface, on the CPU.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "dorajit/dorajit.h"
#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

constexpr std::int64_t kRows = 7;
constexpr std::int64_t kInner = 12;
constexpr std::int64_t kCols = 45;
constexpr std::int64_t kStride = kInner + 3;  // of x
constexpr std::int64_t kWorkspace = kInner * kCols * 4;
constexpr std::array<double, 2> kScalars = {0.5, -2};

class TileProducts : public CAbiTest {
 protected:
  TileProducts() {
    x_.fill(-3, 0.25, 31);
    y_.fill(2, -0.5, 17);
    bias_.fill(0.5, 0.125, 11);
    set_variable("DORAJIT_CXX", std::nullopt);
    set_variable("DORAJIT_TUNE", "first_use");
    set_variable("DORAJIT_TUNE_SECONDS", "0.1");
    engine_ = make_engine();
  }

  [[nodiscard]] dorajit_statistics statistics() const { return statistics_of(engine_.get()); }

  const dorajit_operation* operation_ = dorajit_operation_find("tile_products");

  // The tensors of a call, in the order of the operands.
  std::array<const DLTensor*, 4> tensors(bool has_bias) const {
    return {x_tensor_.get(), y_tensor_.get(), has_bias ? bias_tensor_.get() : nullptr,
            out_tensor_.get()};
  }

  Outcome launch(bool has_bias, std::int64_t workspace_bytes = kWorkspace,
                 std::size_t num_scalars = kScalars.size()) {
    out_.poison();
    dorajit_error* error = nullptr;
    const auto all = tensors(has_bias);
    const dorajit_status status = dorajit_launch(
        engine_.get(), nullptr, operation_, all.data(), all.size(), kScalars.data(),
        static_cast<std::int32_t>(num_scalars), workspace_.data(), workspace_bytes, &error);
    return take(status, error);
  }

  void expect_products(bool has_bias) {
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t col = 0; col < kCols; ++col) {
        double sum = 0;
        for (std::int64_t k = 0; k < kInner; ++k) {
          sum += x_.get(static_cast<std::size_t>(row * kStride + k)) *
                 y_.get(static_cast<std::size_t>(k * kCols + col));
        }
        const double bias = has_bias ? bias_.get(static_cast<std::size_t>(row)) : 0;
        // All values are exact in f32.
        ASSERT_EQ(out_.get(static_cast<std::size_t>(row * kCols + col)),
                  kScalars[0] * sum + kScalars[1] * bias)
            << row << ", " << col;
      }
    }
  }

  EngineHandle engine_;
  HostArray x_{ElementType::kBfloat16, kRows* kStride};
  HostArray y_{ElementType::kFloat32, kInner* kCols};
  HostArray bias_{ElementType::kFloat32, kRows};
  HostArray out_{ElementType::kFloat32, kRows* kCols};
  HostArray workspace_{ElementType::kFloat32, kInner* kCols};
  Tensor x_tensor_{x_.data(), ElementType::kBfloat16, {kRows, kInner}, {kStride, 1}};
  Tensor y_tensor_{y_, {kInner, kCols}};
  Tensor bias_tensor_{bias_, {kRows}};
  Tensor out_tensor_{out_, {kRows, kCols}};
};

TEST_F(TileProducts, DescriptionListsItsOwnDimensions) {
  ASSERT_NE(operation_, nullptr);
  dorajit_operation_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(dorajit_operation_describe(operation_, &info, nullptr), DORAJIT_OK);
  EXPECT_EQ(info.num_scalars, 2);
  const std::array<std::string, 4> dimensions = {"rows, inner", "inner, cols", "rows",
                                                 "rows, cols"};
  for (std::int32_t i = 0; i < info.num_operands; ++i) {
    dorajit_operand_info operand{};
    operand.struct_size = sizeof operand;
    ASSERT_EQ(dorajit_operation_operand(operation_, i, &operand, nullptr), DORAJIT_OK);
    EXPECT_EQ(operand.dimensions, dimensions.at(static_cast<std::size_t>(i)));
    EXPECT_EQ(operand.is_sum, 0);
  }
}

TEST_F(TileProducts, WorkspaceSizeIsThatOfItsTemplate) {
  std::int64_t bytes = 0;
  ASSERT_EQ(dorajit_operation_workspace(operation_, tensors(false).data(), 4, &bytes, nullptr),
            DORAJIT_OK);
  EXPECT_EQ(bytes, kWorkspace);
  const Outcome refused = launch(false, kWorkspace - 1);
  EXPECT_EQ(refused.status, DORAJIT_INVALID_ARGUMENT);
  EXPECT_NE(refused.message.find("`workspace` has 2159 bytes but 2160"), std::string::npos)
      << refused.message;
  const Tensor narrow(y_, {kInner - 1, kCols});
  auto wrong = tensors(false);
  wrong[1] = narrow.get();
  bytes = 77;
  EXPECT_EQ(dorajit_operation_workspace(operation_, wrong.data(), 4, &bytes, nullptr),
            DORAJIT_INVALID_ARGUMENT);
  EXPECT_EQ(bytes, 77);
}

TEST_F(TileProducts, CompiledAndTunedKernelComputesBothStages) {
  for (const bool has_bias : {false, true}) {
    const Outcome outcome = launch(has_bias);
    ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
    expect_products(has_bias);
  }
  EXPECT_EQ(statistics().tuned_problems, 2);
  EXPECT_GT(statistics().compilations, 4);
}

TEST_F(TileProducts, AfterWarmUpACallDoesNotTune) {
  const auto all = tensors(true);
  ASSERT_EQ(dorajit_warmup(engine_.get(), operation_, all.data(), 4, nullptr, 0, nullptr),
            DORAJIT_OK);
  const std::int64_t compiled = statistics().compilations;
  EXPECT_GT(compiled, 1);
  dorajit_explanation explained{};
  explained.struct_size = sizeof explained;
  ASSERT_EQ(
      dorajit_explain(engine_.get(), operation_, all.data(), 4, nullptr, 0, &explained, nullptr),
      DORAJIT_OK);
  EXPECT_STREQ(explained.problem, "tile_products/bf16,f32,f32,f32/v1/i12/c45/r3");
  EXPECT_EQ(std::string(explained.config).substr(0, 1), "t");
  ASSERT_EQ(launch(true).status, DORAJIT_OK);
  expect_products(true);
  EXPECT_EQ(statistics().compilations, compiled);
}

TEST_F(TileProducts, InvalidCallsAreRefused) {
  EXPECT_EQ(launch(false, kWorkspace, 1).status, DORAJIT_INVALID_ARGUMENT);
  const Tensor narrow(y_, {kInner - 1, kCols});
  const Tensor long_bias(x_.data(), ElementType::kFloat32, {kRows + 1});
  HostArray doubles(ElementType::kFloat64, kInner * kCols);
  const Tensor wide(doubles, {kInner, kCols});
  const auto refusal = [&](std::size_t operand, const Tensor& tensor) {
    auto all = tensors(false);
    all.at(operand) = tensor.get();
    dorajit_error* error = nullptr;
    // A separate statement: within one call the error could be read before it is written.
    const dorajit_status status =
        dorajit_warmup(engine_.get(), operation_, all.data(), 4, nullptr, 0, &error);
    return take(status, error).message;
  };
  EXPECT_EQ(refusal(1, narrow),
            "tile_products: argument `y` has 11 `inner` but `x` has 12; give both the same number");
  EXPECT_EQ(refusal(2, long_bias),
            "tile_products: argument `bias` has 8 `rows` but `x` has 7; give both the same number");
  HostArray all_doubles(ElementType::kFloat64, kRows * kCols * kInner);
  const Tensor x(all_doubles, {kRows, kInner});
  const Tensor out(all_doubles, {kRows, kCols});
  const std::array<const DLTensor*, 4> tensors = {x.get(), wide.get(), nullptr, out.get()};
  dorajit_error* error = nullptr;
  const dorajit_status status =
      dorajit_warmup(engine_.get(), operation_, tensors.data(), 4, nullptr, 0, &error);
  const Outcome outcome = take(status, error);
  EXPECT_EQ(outcome.status, DORAJIT_UNSUPPORTED);
  EXPECT_NE(outcome.message.find("there is no kernel for f64"), std::string::npos)
      << outcome.message;
}

}  // namespace
}  // namespace dorajit::bindings
