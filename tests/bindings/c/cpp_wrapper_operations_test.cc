// compose_inner, backward and norm_assembly through the C++ wrapper.
#include <array>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "dorajit/dorajit.hpp"
#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

using Type = dorajit::ElementType;

static_assert(std::is_copy_constructible_v<Gradients>);

constexpr double kScale = 0.5;
constexpr std::int64_t kRows = 300;
constexpr std::int64_t kCols = 3;
constexpr auto kCount = static_cast<std::size_t>(kRows * kCols);

class CppWrapperOperationsTest : public CAbiTest {
 protected:
  CppWrapperOperationsTest() {
    for (std::size_t i = 0; i < kCount; ++i) {
      lora_[i] = 0.25F * static_cast<float>(i % 17);
      base_[i] = 1 - 0.125F * static_cast<float>(i % 23);
    }
  }

  template <class Call>
  Error thrown_by(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {dorajit::Status::kOk, ""};
  }

  static TensorRef matrix(std::vector<float>& values) {
    return {values.data(), {kRows, kCols}, Type::kFloat32};
  }
  [[nodiscard]] ConstTensorRef gain() const { return {gain_.data(), {kCols}, Type::kFloat32}; }

  Engine engine_;
  std::vector<float> lora_ = std::vector<float>(kCount);
  std::vector<float> base_ = std::vector<float>(kCount);
  const std::array<float, 3> gain_{0.5F, 1, 1.5F};
  std::vector<float> out_ = std::vector<float>(kCount);
  std::vector<float> inner_ = std::vector<float>(kCount);
};

TEST_F(CppWrapperOperationsTest, ComposeInnerWritesBothOutputs) {
  engine_.compose_inner(nullptr, matrix(lora_), matrix(base_), gain(), kScale, matrix(out_),
                        matrix(inner_));
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(out_[i], plain_compose(lora_[i], base_[i], gain_.at(i % 3), kScale));
    ASSERT_EQ(inner_[i], static_cast<float>(kScale) * lora_[i] + base_[i]);
  }
}

TEST_F(CppWrapperOperationsTest, BackwardComputesOnlyWantedGradients) {
  std::vector<float> d_lora(kCount);
  Gradients gradients;
  gradients.d_lora = matrix(d_lora);
  engine_.backward(nullptr, matrix(lora_), gain(), kScale, gradients);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(d_lora[i], gain_.at(i % 3) * static_cast<float>(kScale) * lora_[i]);
  }
}

TEST_F(CppWrapperOperationsTest, BackwardSumsInItsWorkspace) {
  const std::int64_t bytes = Engine::backward_workspace(matrix(lora_), gain());
  EXPECT_EQ(bytes, 2 * kCols * 4);
  std::vector<std::byte> workspace(static_cast<std::size_t>(bytes));
  std::vector<double> sums(kCols);
  for (std::size_t i = 0; i < kCount; ++i) sums[i % 3] += double{lora_[i]} * base_[i];
  std::array<float, 3> d_gain{};
  std::vector<float> d_base(kCount);
  Gradients gradients;
  gradients.d_base = matrix(d_base);
  gradients.d_gain = TensorRef(d_gain.data(), {kCols}, Type::kFloat32);
  gradients.inner = matrix(base_);
  gradients.workspace = workspace.data();
  gradients.workspace_bytes = bytes;
  engine_.backward(nullptr, matrix(lora_), gain(), kScale, gradients);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(d_base[i], (gain_.at(i % 3) - 1) * lora_[i]);
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(d_gain.at(i), sums[i]);
}

TEST_F(CppWrapperOperationsTest, BackwardRefusesByName) {
  std::array<float, 3> d_gain{};
  Gradients gradients;
  Error error =
      thrown_by([&] { engine_.backward(nullptr, matrix(lora_), gain(), kScale, gradients); });
  EXPECT_EQ(error.status(), dorajit::Status::kInvalidArgument);
  gradients.d_gain = TensorRef(d_gain.data(), {kCols}, Type::kFloat32);
  error = thrown_by([&] { engine_.backward(nullptr, matrix(lora_), gain(), kScale, gradients); });
  EXPECT_NE(std::string(error.what()).find("`inner`"), std::string::npos) << error.what();
  gradients.inner = matrix(base_);
  error = thrown_by([&] { engine_.backward(nullptr, matrix(lora_), gain(), kScale, gradients); });
  EXPECT_NE(std::string(error.what()).find("`workspace`"), std::string::npos) << error.what();
  const ConstTensorRef longer(gain_.data(), {4}, Type::kFloat32);
  error = thrown_by([&] { static_cast<void>(Engine::backward_workspace(matrix(lora_), longer)); });
  EXPECT_EQ(error.status(), dorajit::Status::kInvalidArgument);
}

TEST_F(CppWrapperOperationsTest, NormAssemblyTakesAnyShape) {
  engine_.norm_assembly(nullptr, matrix(lora_), matrix(base_), matrix(lora_), kScale, matrix(out_));
  for (std::size_t i = 0; i < kCount; ++i) {
    const float sum = lora_[i] + base_[i] + 0.25F * lora_[i];
    ASSERT_EQ(out_[i], std::sqrt(sum < 0 ? 0 : sum));
  }
}

TEST_F(CppWrapperOperationsTest, GainsOfConvolutionsAreBroadcast) {
  const ConstTensorRef lora(lora_.data(), {100, 3, 3}, Type::kFloat32);
  const ConstTensorRef base(base_.data(), {100, 3, 3}, Type::kFloat32);
  const TensorRef out(out_.data(), {100, 3, 3}, Type::kFloat32);
  const ConstTensorRef channels(gain_.data(), {1, 3, 1}, Type::kFloat32);
  engine_.compose(nullptr, lora, base, channels, kScale, out);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(out_[i], plain_compose(lora_[i], base_[i], gain_.at(i / 3 % 3), kScale));
  }
}

}  // namespace
}  // namespace dorajit::bindings
