// The C++ wrapper: RAII types, exceptions and tensor views over the C ABI.
#include <array>
#include <type_traits>
#include <utility>

#include "dorajit/dorajit.hpp"
#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

using Type = dorajit::ElementType;

static_assert(!std::is_copy_constructible_v<Engine>);
static_assert(std::is_nothrow_move_constructible_v<Engine>);
static_assert(std::is_nothrow_move_assignable_v<Engine>);
static_assert(std::is_nothrow_copy_constructible_v<Error>);
static_assert(std::is_convertible_v<TensorRef, ConstTensorRef>);
static_assert(!std::is_convertible_v<ConstTensorRef, TensorRef>);

// A DLTensor points to the sizes in its view, so a temporary view does not give one.
template <class View>
concept GivesTensor = requires(View&& view) { std::forward<View>(view).dl_tensor(); };
static_assert(GivesTensor<TensorRef&> && GivesTensor<const ConstTensorRef&>);
static_assert(!GivesTensor<TensorRef> && !GivesTensor<const ConstTensorRef>);

class CppWrapperTest : public CAbiTest {
 protected:
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

  void expect_composed() {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      ASSERT_EQ(out_.at(i), plain_compose(lora_.at(i), base_.at(i), gain_.at(i % 3), 0.5));
    }
  }

  const std::array<float, 6> lora_{1, 2, 3, 4, 5, 6};
  const std::array<float, 6> base_{6, 5, 4, 3, 2, 1};
  const std::array<float, 3> gain_{0.5F, 1, 1.5F};
  std::array<float, 6> out_{};
};

TEST_F(CppWrapperTest, ComposesPointersWithShapes) {
  Engine engine;
  engine.compose(nullptr, {lora_.data(), {2, 3}, Type::kFloat32},
                 {base_.data(), {1, 2, 3}, {6, 3, 1}, Type::kFloat32},
                 {gain_.data(), {3}, Type::kFloat32}, 0.5, {out_.data(), {2, 3}, Type::kFloat32});
  expect_composed();
  EXPECT_EQ(engine.statistics().launches, 1);
  const std::vector<Explanation> plans = engine.plans();
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].device.device_type, kDLCPU);
  EXPECT_EQ(plans[0].problem, "compose/f32,f32,f32,f32/v1/c3/r1");
  EXPECT_EQ(plans[0].source, "default");
  EXPECT_EQ(plans[0].renewals, 0);
}

TEST_F(CppWrapperTest, ComposesDlpackTensorsAndCopiesOfViews) {
  Engine engine;
  HostArray lora(kernels::ElementType::kFloat32, 6);
  for (std::size_t i = 0; i < 6; ++i) lora.set(i, lora_.at(i));
  const Tensor dlpack(lora, {2, 3});
  const std::vector<std::int64_t> shape{2, 3};
  TensorRef out(out_.data(), shape, Type::kFloat32);
  const TensorRef copy = out;
  out = TensorRef(nullptr, {0}, Type::kFloat64);
  engine.compose(nullptr, *dlpack.get(), ConstTensorRef(base_.data(), shape, Type::kFloat32),
                 {gain_.data(), std::array<std::int64_t, 2>{1, 3}, Type::kFloat32}, 0.5, copy);
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
  Engine engine;
  const ConstTensorRef matrix(lora_.data(), {2, 3}, Type::kFloat32);
  const Error error = thrown_by([&] {
    engine.compose(nullptr, matrix, matrix, {gain_.data(), {2}, Type::kFloat32}, 1,
                   {out_.data(), {2, 3}, Type::kFloat32});
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
  Engine engine;
  const TensorRef whole(out_.data(), {2, 3}, Type::kFloat32);
  DLTensor broken = whole.dl_tensor();
  broken.shape = nullptr;
  const ConstTensorRef gain(gain_.data(), {3}, Type::kFloat32);
  const TensorRef out(out_.data(), {2, 3}, Type::kFloat32);
  Error error = thrown_by([&] { engine.compose(nullptr, out, broken, gain, 1, out); });
  EXPECT_NE(std::string(error.what()).find("`base`"), std::string::npos) << error.what();
  error = thrown_by([&] { TensorRef(out_.data(), {1, 1, 1, 1, 1, 1, 1, 1, 1}, Type::kFloat32); });
  EXPECT_EQ(error.status(), dorajit::Status::kInvalidArgument);
  error = thrown_by([&] { TensorRef(out_.data(), {2, 3}, {1}, Type::kFloat32); });
  EXPECT_EQ(error.status(), dorajit::Status::kInvalidArgument);
}

TEST_F(CppWrapperTest, EnginesCanBeMoved) {
  Engine first;
  Engine second = std::move(first);
  EXPECT_EQ(second.statistics().launches, 0);
  // NOLINTNEXTLINE(bugprone-use-after-move): the state of a moved-from engine is tested here.
  const Error error = thrown_by([&] { static_cast<void>(first.statistics()); });
  EXPECT_EQ(error.status(), dorajit::Status::kInvalidArgument);
  first = Engine();
  EXPECT_EQ(first.statistics().launches, 0);
}

TEST_F(CppWrapperTest, OptionsReachTheEngine) {
  Options options;
  options.cache_dir = "relative";
  const Error error = thrown_by([&] { Engine engine(options); });
  EXPECT_NE(std::string(error.what()).find("cache_dir"), std::string::npos) << error.what();
  options.cache_dir = "";
  options.tune_policy = TunePolicy::kOff;
  EXPECT_EQ(Engine(options).statistics().trials, 0);
}

}  // namespace
}  // namespace dorajit::bindings
