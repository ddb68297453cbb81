// The C++ wrapper: RAII types, exceptions and tensor views over the C ABI, and every operation.
#include <array>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "dorajit/dorajit.hpp"
#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

using Type = dorajit::ElementType;
using Floats = std::vector<float>;

static_assert(!std::is_copy_constructible_v<Engine>);
static_assert(std::is_nothrow_move_constructible_v<Engine>);
static_assert(std::is_nothrow_move_assignable_v<Engine>);
static_assert(std::is_nothrow_copy_constructible_v<Error>);
static_assert(std::is_copy_constructible_v<Gradients>);
static_assert(std::is_convertible_v<TensorRef, ConstTensorRef>);
static_assert(!std::is_convertible_v<ConstTensorRef, TensorRef>);

// A DLTensor points to the sizes in its view, so a temporary view does not give one.
template <class View>
concept GivesTensor = requires(View&& view) { std::forward<View>(view).dl_tensor(); };
static_assert(GivesTensor<TensorRef&> && GivesTensor<const ConstTensorRef&>);
static_assert(!GivesTensor<TensorRef> && !GivesTensor<const ConstTensorRef>);

constexpr double kScale = 0.5;
constexpr auto kScaleF = static_cast<float>(kScale);
constexpr std::int64_t kRows = 300;
constexpr std::int64_t kCols = 3;
constexpr auto kCount = static_cast<std::size_t>(kRows * kCols);

class CppWrapperTest : public CAbiTest {
 protected:
  CppWrapperTest() {
    for (std::size_t i = 0; i < kCount; ++i) {
      lora_[i] = 0.25F * static_cast<float>(i % 17);
      base_[i] = 1 - 0.125F * static_cast<float>(i % 23);
    }
  }

  // The error that `call` throws.
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
  template <class Call>
  void expect_invalid(const std::string& part, const Call& call) {
    const Error error = thrown_by(call);
    EXPECT_EQ(error.status(), dorajit::Status::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }

  static TensorRef matrix(Floats& values) {
    return {values.data(), {kRows, kCols}, Type::kFloat32};
  }
  static TensorRef channels(std::array<float, kCols>& values) {
    return {values.data(), {kCols}, Type::kFloat32};
  }
  [[nodiscard]] ConstTensorRef gain() const { return {gain_.data(), {kCols}, Type::kFloat32}; }

  void expect_composed() {
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(out_[i], plain_compose(lora_[i], base_[i], gain_.at(i % 3), kScale));
    }
  }

  Engine engine_;
  Floats lora_ = Floats(kCount);
  Floats base_ = Floats(kCount);
  const std::array<float, kCols> gain_{0.5F, 1, 1.5F};
  std::array<float, kCols> bias_{0.1F, -0.2F, 7};
  Floats out_ = Floats(kCount);
  Floats inner_ = Floats(kCount);
};

TEST_F(CppWrapperTest, ComposesPointersWithShapes) {
  engine_.compose(nullptr, matrix(lora_),
                  {base_.data(), {1, kRows, 3}, {900, 3, 1}, Type::kFloat32}, gain(), kScale,
                  matrix(out_));
  expect_composed();
  EXPECT_EQ(engine_.statistics().launches, 1);
  const std::vector<Explanation> plans = engine_.plans();
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].device.device_type, kDLCPU);
  EXPECT_EQ(plans[0].problem, "compose/f32,f32,f32,f32/v1/c3/r9");
  EXPECT_EQ(plans[0].source, "default");
  EXPECT_EQ(plans[0].renewals, 0);
}

TEST_F(CppWrapperTest, ComposesDlpackTensorsAndCopiesOfViews) {
  const Tensor dlpack(lora_.data(), kernels::ElementType::kFloat32, {kRows, kCols});
  const std::vector<std::int64_t> shape{kRows, kCols};
  TensorRef out(out_.data(), shape, Type::kFloat32);
  const TensorRef copy = out;
  out = TensorRef(nullptr, {0}, Type::kFloat64);
  engine_.compose(nullptr, *dlpack.get(), ConstTensorRef(base_.data(), shape, Type::kFloat32),
                  {gain_.data(), std::array<std::int64_t, 2>{1, 3}, Type::kFloat32}, kScale, copy);
  expect_composed();
}

TEST_F(CppWrapperTest, ViewsDescribeTheirTensors) {
  const TensorRef view(out_.data(), {2, 3}, {8, 1}, Type::kBfloat16, dorajit::Device::cuda(2));
  const ConstTensorRef read_only(view);
  const DLTensor tensor = read_only.dl_tensor();
  EXPECT_EQ(tensor.data, out_.data());
  EXPECT_EQ(tensor.ndim, 2);
  EXPECT_EQ(tensor.device.device_type, kDLCUDA);
  EXPECT_EQ(tensor.device.device_id, 2);
  EXPECT_EQ(tensor.dtype.code, kDLBfloat);
  EXPECT_EQ(tensor.dtype.bits, 16);
  EXPECT_EQ(tensor.dtype.lanes, 1);
  EXPECT_EQ(tensor.byte_offset, 0U);
  const TensorRef halves(out_.data(), {6}, Type::kFloat16);
  EXPECT_EQ(halves.dl_tensor().dtype.code, kDLFloat);
  EXPECT_EQ(halves.dl_tensor().strides, nullptr);
}

TEST_F(CppWrapperTest, ErrorsNameTheArgument) {
  const Error error = thrown_by([&] {
    engine_.compose(nullptr, matrix(lora_), matrix(base_), {gain_.data(), {2}, Type::kFloat32}, 1,
                    matrix(out_));
  });
  EXPECT_EQ(error.status(), dorajit::Status::kInvalidArgument);
  EXPECT_STREQ(status_name(error.status()), "INVALID_ARGUMENT");
  EXPECT_NE(std::string(error.what()).find("`gain`"), std::string::npos) << error.what();
  EXPECT_EQ(error.log(), "");
}

TEST_F(CppWrapperTest, ErrorsHaveTheCompilersLog) {
  const Error error = thrown_by([] { detail::check(fail_to_compile); });
  EXPECT_EQ(error.status(), dorajit::Status::kCompileError);
  EXPECT_STREQ(error.what(), "it did not compile");
  EXPECT_EQ(error.log(), "line 1: no");
}

TEST_F(CppWrapperTest, BrokenDlpackTensorsAreRefused) {
  const TensorRef out = matrix(out_);
  DLTensor broken = out.dl_tensor();
  broken.shape = nullptr;
  expect_invalid("`base`", [&] { engine_.compose(nullptr, out, broken, gain(), 1, out); });
  expect_invalid("", [&] { TensorRef(out_.data(), {1, 1, 1, 1, 1, 1, 1, 1, 1}, Type::kFloat32); });
  expect_invalid("", [&] { TensorRef(out_.data(), {2, 3}, {1}, Type::kFloat32); });
}

TEST_F(CppWrapperTest, EnginesCanBeMoved) {
  Engine first;
  Engine second = std::move(first);
  EXPECT_EQ(second.statistics().launches, 0);
  // NOLINTNEXTLINE(bugprone-use-after-move): the state of a moved-from engine is tested here.
  expect_invalid("", [&] { static_cast<void>(first.statistics()); });
  first = Engine();
  EXPECT_EQ(first.statistics().launches, 0);
}

TEST_F(CppWrapperTest, OptionsReachTheEngine) {
  Options options;
  options.cache_dir = "relative";
  expect_invalid("cache_dir", [&] { Engine engine(options); });
  options.cache_dir = "";
  options.tune_policy = TunePolicy::kOff;
  EXPECT_EQ(Engine(options).statistics().trials, 0);
}

TEST_F(CppWrapperTest, ComposeInnerWritesBothOutputs) {
  engine_.compose_inner(nullptr, matrix(lora_), matrix(base_), gain(), kScale, matrix(out_),
                        matrix(inner_));
  expect_composed();
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(inner_[i], kScaleF * lora_[i] + base_[i]);
}

TEST_F(CppWrapperTest, ComposeResidualTakesABiasOrNone) {
  for (const bool has_bias : {false, true}) {
    const auto bias = has_bias ? std::optional<ConstTensorRef>(channels(bias_)) : std::nullopt;
    engine_.warmup("compose_residual",
                   {matrix(lora_), matrix(base_), gain(), bias, matrix(out_), std::nullopt});
    const std::int64_t ready = engine_.statistics().builtin_kernels;
    EXPECT_EQ(ready, has_bias ? 3 : 1);
    engine_.compose_residual(nullptr, matrix(lora_), matrix(base_), gain(), bias, kScale,
                             matrix(out_));
    EXPECT_EQ(engine_.statistics().builtin_kernels, ready) << "it was warmed up";
    Floats again(kCount);
    engine_.compose_residual(nullptr, matrix(lora_), matrix(base_), gain(), bias, kScale,
                             matrix(again), matrix(inner_));
    EXPECT_EQ(again, out_);
    for (std::size_t i = 0; i < kCount; ++i) {
      const float base = has_bias ? base_[i] - bias_.at(i % 3) : base_[i];
      ASSERT_EQ(out_[i], base_[i] + plain_compose(lora_[i], base, gain_.at(i % 3), kScale));
      ASSERT_EQ(inner_[i], kScaleF * lora_[i] + base);
    }
  }
}

TEST_F(CppWrapperTest, ResidualGradientsAreThoseOfTheSum) {
  Floats d_result(kCount);
  std::array<float, kCols> d_gain{};
  Floats workspace(6);
  EXPECT_EQ(Engine::residual_backward_workspace(matrix(lora_), gain()), 2 * kCols * 4);
  ResidualGradients gradients;
  gradients.d_lora = matrix(out_);
  gradients.d_result = matrix(d_result);
  gradients.d_gain = channels(d_gain);
  gradients.inner = ConstTensorRef(matrix(base_));
  gradients.workspace = workspace.data();
  gradients.workspace_bytes = 24;
  engine_.warmup("residual_backward",
                 {matrix(lora_), std::nullopt, gain(), matrix(out_), matrix(inner_), std::nullopt});
  engine_.residual_backward(nullptr, matrix(lora_), gain(), kScale, gradients);
  std::array<float, kCols> sums{};
  for (std::size_t i = 0; i < kCount; ++i) {
    const float gain = gain_.at(i % 3);
    ASSERT_EQ(out_[i], gain * kScaleF * lora_[i]);
    ASSERT_EQ(d_result[i], gain * lora_[i]);
    sums.at(i % 3) += base_[i] * lora_[i];
  }
  EXPECT_EQ(d_gain, sums);
}

TEST_F(CppWrapperTest, BackwardComputesOnlyWantedGradients) {
  Gradients gradients;
  gradients.d_lora = matrix(out_);
  engine_.backward(nullptr, matrix(lora_), gain(), kScale, gradients);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(out_[i], gain_.at(i % 3) * kScaleF * lora_[i]);
  }
}

TEST_F(CppWrapperTest, BackwardSumsInItsWorkspace) {
  const std::int64_t bytes = Engine::backward_workspace(matrix(lora_), gain());
  EXPECT_EQ(bytes, 2 * kCols * 4);
  std::vector<std::byte> workspace(static_cast<std::size_t>(bytes));
  std::array<double, kCols> sums{};
  for (std::size_t i = 0; i < kCount; ++i) sums.at(i % 3) += double{lora_[i]} * base_[i];
  std::array<float, kCols> d_gain{};
  Gradients gradients;
  gradients.d_base = matrix(out_);
  gradients.d_gain = channels(d_gain);
  gradients.inner = matrix(base_);
  gradients.workspace = workspace.data();
  gradients.workspace_bytes = bytes;
  engine_.backward(nullptr, matrix(lora_), gain(), kScale, gradients);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(out_[i], (gain_.at(i % 3) - 1) * lora_[i]);
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(d_gain.at(i), sums.at(i));
}

TEST_F(CppWrapperTest, BackwardRefusesByName) {
  std::array<float, kCols> d_gain{};
  Gradients gradients;
  const auto run = [&] { engine_.backward(nullptr, matrix(lora_), gain(), kScale, gradients); };
  expect_invalid("", run);
  gradients.d_gain = channels(d_gain);
  expect_invalid("`inner`", run);
  gradients.inner = matrix(base_);
  expect_invalid("`workspace`", run);
  const ConstTensorRef longer(gain_.data(), {4}, Type::kFloat32);
  expect_invalid("", [&] { static_cast<void>(Engine::backward_workspace(matrix(lora_), longer)); });
}

// No operation has more tensors.
TEST_F(CppWrapperTest, TwelveTensorsAreLaunched) {
  std::array<float, kCols> magnitudes{1, 2, 4};
  std::array<float, kCols> d_gate_magnitude{};
  std::array<float, kCols> d_up_magnitude{};
  Floats d_gate(kCount);
  const Operation operation("gated_silu_backward");
  const auto launch = [&](const std::optional<ConstTensorRef>& more) {
    const std::initializer_list<std::optional<ConstTensorRef>> tensors = {
        matrix(base_),
        matrix(lora_),
        matrix(base_),
        gain(),
        gain(),
        channels(magnitudes),
        channels(magnitudes),
        matrix(out_),
        matrix(d_gate),
        matrix(inner_),
        channels(d_gate_magnitude),
        more};
    std::vector<double> workspace(
        static_cast<std::size_t>(Engine::workspace_bytes(operation, tensors) / 8 + 1));
    engine_.launch(nullptr, operation, tensors, {},
                   {workspace.data(), static_cast<std::int64_t>(workspace.size() * 8)});
  };
  launch(channels(d_up_magnitude));
  std::array<double, kCols> sums{};
  for (std::size_t i = 0; i < kCount; ++i) {
    const double activated = lora_[i] / (1 + std::exp(-double{lora_[i]}));
    ASSERT_NEAR(out_[i], activated * base_[i], 1e-5);
    ASSERT_NEAR(inner_[i], gain_.at(i % 3) * activated * base_[i], 1e-5);
    sums.at(i % 3) += activated * base_[i] * base_[i];
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(d_up_magnitude.at(i), sums.at(i) / magnitudes.at(i), 1e-3);
  }
  expect_invalid("`d_up_magnitude`", [&] { launch(std::nullopt); });
}

TEST_F(CppWrapperTest, NormAssemblyTakesAnyShape) {
  engine_.norm_assembly(nullptr, matrix(lora_), matrix(base_), matrix(lora_), kScale, matrix(out_));
  for (std::size_t i = 0; i < kCount; ++i) {
    const float sum = lora_[i] + base_[i] + 0.25F * lora_[i];
    ASSERT_EQ(out_[i], std::sqrt(sum < 0 ? 0 : sum));
  }
}

TEST_F(CppWrapperTest, GainsOfConvolutionsAreBroadcast) {
  const ConstTensorRef lora(lora_.data(), {100, 3, 3}, Type::kFloat32);
  const ConstTensorRef base(base_.data(), {100, 3, 3}, Type::kFloat32);
  const TensorRef out(out_.data(), {100, 3, 3}, Type::kFloat32);
  const ConstTensorRef per_row(gain_.data(), {1, 3, 1}, Type::kFloat32);
  engine_.compose(nullptr, lora, base, per_row, kScale, out);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(out_[i], plain_compose(lora_[i], base_[i], gain_.at(i / 3 % 3), kScale));
  }
}

}  // namespace
}  // namespace dorajit::bindings
