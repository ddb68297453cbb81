// The results of dorajit_compose_residual and dorajit_residual_backward on the CPU, and the calls
// that they refuse.
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "dorajit/dorajit.hpp"
#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

using Type = dorajit::ElementType;
using Floats = std::vector<float>;

constexpr double kScale = 0.75;
constexpr auto kScaleF = static_cast<float>(kScale);
constexpr std::int64_t kRows = 6;
constexpr std::int64_t kCols = 5;
constexpr auto kCount = static_cast<std::size_t>(kRows * kCols);

class ComposeResidualTest : public CAbiTest {
 protected:
  ComposeResidualTest() {
    for (std::size_t i = 0; i < kCount; ++i) {
      lora_[i] = std::sin(static_cast<float>(i));
      result_[i] = std::cos(static_cast<float>(3 * i));
    }
  }

  static TensorRef matrix(Floats& values) {
    return {values.data(), {kRows, kCols}, Type::kFloat32};
  }
  [[nodiscard]] ConstTensorRef gain() const { return channels(gain_); }
  [[nodiscard]] ConstTensorRef bias() const { return channels(bias_); }
  static ConstTensorRef channels(const std::array<float, kCols>& values) {
    return {values.data(), {kCols}, Type::kFloat32};
  }

  [[nodiscard]] float base(std::size_t i, bool has_bias) const {
    return has_bias ? result_[i] - bias_.at(i % kCols) : result_[i];
  }

  void expect_right(const Floats& out, bool has_bias) const {
    for (std::size_t i = 0; i < kCount; ++i) {
      const float delta = plain_compose(lora_[i], base(i, has_bias), gain_.at(i % kCols), kScale);
      ASSERT_EQ(out[i], result_[i] + delta) << "element " << i;
    }
  }

  void expect_inner(const Floats& inner, bool has_bias) const {
    for (std::size_t i = 0; i < kCount; ++i) {
      const float scaled = kScaleF * lora_[i];
      ASSERT_EQ(inner[i], scaled + base(i, has_bias)) << "element " << i;
    }
  }

  template <class Call>
  void expect_refused(dorajit::Status status, const std::string& says, const Call& call) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), status);
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
    for (const float untouched : out_) ASSERT_EQ(untouched, 0);
  }

  Engine engine_;
  Floats lora_ = Floats(kCount);
  Floats result_ = Floats(kCount);
  const std::array<float, kCols> gain_{0.5F, 1, 1.5F, 0.99F, 1.01F};
  const std::array<float, kCols> bias_{0.1F, -0.2F, 0.3F, 1e-3F, 7};
  Floats out_ = Floats(kCount);
  Floats inner_ = Floats(kCount);
};

TEST_F(ComposeResidualTest, EqualsThePlainExpressionWithAndWithoutBiasAndInner) {
  for (const bool has_bias : {false, true}) {
    const auto given = has_bias ? std::optional(bias()) : std::nullopt;
    engine_.compose_residual(nullptr, matrix(lora_), matrix(result_), gain(), given, kScale,
                             matrix(out_));
    expect_right(out_, has_bias);
    Floats again(kCount);
    engine_.compose_residual(nullptr, matrix(lora_), matrix(result_), gain(), given, kScale,
                             matrix(again), matrix(inner_));
    EXPECT_EQ(again, out_);
    expect_inner(inner_, has_bias);
  }
}

TEST_F(ComposeResidualTest, NewAdapterLeavesResultUnchanged) {
  const std::array<float, kCols> ones{1, 1, 1, 1, 1};
  const Floats nothing(kCount);
  engine_.compose_residual(nullptr, {nothing.data(), {kRows, kCols}, Type::kFloat32},
                           matrix(result_), channels(ones), bias(), kScale, matrix(out_));
  EXPECT_EQ(out_, result_);
}

TEST_F(ComposeResidualTest, MayBeWrittenOverEitherInput) {
  for (const bool over_lora : {true, false}) {
    Floats lora = lora_;
    Floats result = result_;
    engine_.compose_residual(nullptr, matrix(lora), matrix(result), gain(), bias(), kScale,
                             matrix(over_lora ? lora : result), matrix(over_lora ? result : lora));
    expect_right(over_lora ? lora : result, true);
    expect_inner(over_lora ? result : lora, true);
  }
}

TEST_F(ComposeResidualTest, ChannelsAlongTheRowsAreAccepted) {
  const std::array<float, 3> gain{0.5F, 2, 1.25F};
  const std::array<float, 3> bias{1, -0.5F, 0.25F};
  const auto image = [](Floats& values) {
    return TensorRef{values.data(), {2, 3, kCols}, Type::kFloat32};
  };
  const ConstTensorRef per_row{gain.data(), {1, 3, 1}, Type::kFloat32};
  const ConstTensorRef bias_per_row{bias.data(), {1, 3, 1}, Type::kFloat32};
  engine_.compose_residual(nullptr, image(lora_), image(result_), per_row, bias_per_row, kScale,
                           image(out_));
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t channel = i / kCols % 3;
    const float base = result_[i] - bias.at(channel);
    ASSERT_EQ(out_[i], result_[i] + plain_compose(lora_[i], base, gain.at(channel), kScale));
  }
}

TEST_F(ComposeResidualTest, BiasOfAnotherShapeIsRefused) {
  const ConstTensorRef few{bias_.data(), {kCols - 1}, Type::kFloat32};
  expect_refused(dorajit::Status::kInvalidArgument, "`bias`", [&] {
    engine_.compose_residual(nullptr, matrix(lora_), matrix(result_), gain(), few, kScale,
                             matrix(out_));
  });
  const std::array<float, kRows> rows{};
  const ConstTensorRef other{rows.data(), {kRows, 1}, Type::kFloat32};
  expect_refused(dorajit::Status::kUnsupported, "a different dimension than `gain`", [&] {
    engine_.compose_residual(nullptr, matrix(lora_), matrix(result_), gain(), other, kScale,
                             matrix(out_));
  });
  // Gain and bias must have the same number of channels: one and three do not match.
  const ConstTensorRef three{rows.data(), {1, 3, 1}, Type::kFloat32};
  const ConstTensorRef one{rows.data(), {1, 1, 1}, Type::kFloat32};
  const auto image = [](Floats& values) {
    return TensorRef{values.data(), {2, 3, kCols}, Type::kFloat32};
  };
  expect_refused(dorajit::Status::kInvalidArgument, "`bias`", [&] {
    engine_.compose_residual(nullptr, image(lora_), image(result_), three, one, kScale,
                             image(out_));
  });
}

TEST_F(ComposeResidualTest, GradientsAreThoseOfTheSum) {
  Floats d_lora(kCount);
  Floats d_result(kCount);
  std::array<float, kCols> d_gain{};
  ResidualGradients gradients;
  gradients.d_lora = matrix(d_lora);
  gradients.d_result = matrix(d_result);
  gradients.d_gain = TensorRef{d_gain.data(), {kCols}, Type::kFloat32};
  gradients.inner = ConstTensorRef(matrix(result_));
  EXPECT_EQ(Engine::residual_backward_workspace(matrix(lora_), gain()), 0);
  engine_.residual_backward(nullptr, matrix(lora_), gain(), kScale, gradients);
  std::array<float, kCols> sums{};
  for (std::size_t i = 0; i < kCount; ++i) {
    const float gain = gain_.at(i % kCols);
    ASSERT_EQ(d_lora[i], gain * kScaleF * lora_[i]);
    ASSERT_EQ(d_result[i], gain * lora_[i]);
    sums.at(i % kCols) += result_[i] * lora_[i];
  }
  EXPECT_EQ(d_gain, sums);
}

TEST_F(ComposeResidualTest, WarmedUpCallsCompileNothing) {
  for (const bool has_bias : {false, true}) {
    const auto given = has_bias ? std::optional(bias()) : std::nullopt;
    engine_.warmup("compose_residual",
                   {matrix(lora_), matrix(result_), gain(), given, matrix(out_), std::nullopt});
    const std::int64_t ready = engine_.statistics().builtin_kernels;
    EXPECT_EQ(ready, has_bias ? 2 : 1);
    engine_.compose_residual(nullptr, matrix(lora_), matrix(result_), gain(), given, kScale,
                             matrix(out_));
    EXPECT_EQ(engine_.statistics().builtin_kernels, ready);
  }
  engine_.warmup("residual_backward",
                 {matrix(lora_), std::nullopt, gain(), matrix(out_), matrix(inner_), std::nullopt});
}

}  // namespace
}  // namespace dorajit::bindings
