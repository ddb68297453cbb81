// The results of dorajit_norm_assembly on the CPU, and the calls that it refuses.
#include <array>
#include <cmath>
#include <limits>

#include "tests/bindings/c/operation_calls.h"

namespace dorajit::bindings {
namespace {

constexpr std::int64_t kSize = 37;
constexpr auto kCount = static_cast<std::size_t>(kSize);

// PyTorch's four kernels in plain C++, each operation rounded once.
template <class T>
T plain_norm(double w, double cross, double ba, double scale) {
  const auto two_s = static_cast<T>(2 * scale);
  const auto s2 = static_cast<T>(scale * scale);
  const T cross_part = two_s * static_cast<T>(cross);
  const T partial = static_cast<T>(w) + cross_part;
  const T ba_part = s2 * static_cast<T>(ba);
  const T sum = partial + ba_part;
  return std::sqrt(sum < 0 ? T(0) : sum);
}

class NormAssemblyTest : public CAbiTest {
 protected:
  NormAssemblyTest() {
    w_.fill(3, 0.25, 19);
    cross_.fill(-2, 0.125, 29);
    ba_.fill(0.5, 0.375, 13);
    norm_.poison();
  }

  Outcome run(double scale, HostArray& norm) {
    return norm_assembly(engine_.get(), {w_, {kSize}}, {cross_, {kSize}}, {ba_, {kSize}}, scale,
                         {norm, {kSize}});
  }

  // Expects the plain result in `norm`, rounded to its element type.
  void expect_norms(double scale, const HostArray& norm) const {
    HostArray want(norm.type(), kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      want.set(i, plain_norm<float>(w_.get(i), cross_.get(i), ba_.get(i), scale));
      ASSERT_EQ(norm.get(i), want.get(i)) << "element " << i << ", scale " << scale;
    }
  }

  void expect_refused(const std::string& argument, const std::array<const Tensor*, 4>& tensors,
                      dorajit_status status = DORAJIT_INVALID_ARGUMENT) {
    const std::array before = {w_.bytes(), cross_.bytes(), ba_.bytes(), norm_.bytes()};
    auto raw = [](const Tensor* tensor) { return tensor != nullptr ? tensor->get() : nullptr; };
    const Outcome outcome = outcome_of([&](dorajit_error** error) {
      return dorajit_norm_assembly(engine_.get(), nullptr, raw(tensors[0]), raw(tensors[1]),
                                   raw(tensors[2]), 1, raw(tensors[3]), error);
    });
    expect_refusal(outcome, "norm_assembly: ", "`" + argument + "`", status);
    EXPECT_TRUE(before == (std::array{w_.bytes(), cross_.bytes(), ba_.bytes(), norm_.bytes()}));
  }

  HostArray w_{ElementType::kFloat32, kCount};
  HostArray cross_{ElementType::kFloat32, kCount};
  HostArray ba_{ElementType::kFloat32, kCount};
  HostArray norm_{ElementType::kFloat32, kCount};
  EngineHandle engine_ = make_engine();
};

TEST_F(NormAssemblyTest, EqualsThePlainExpressionForAnyScale) {
  for (const double scale : {0.7, 0.0, -1.3, 1e-30, 3e5}) {
    norm_.poison();
    ASSERT_EQ(run(scale, norm_).message, "");
    expect_norms(scale, norm_);
  }
}

TEST_F(NormAssemblyTest, ScalarsAreComputedInDouble) {
  // Computed in float, scale * scale would be a different number.
  const double scale = 1 + 0x1p-24 + 0x1p-40;
  ASSERT_NE(static_cast<float>(scale * scale),
            static_cast<float>(scale) * static_cast<float>(scale));
  ASSERT_EQ(run(scale, norm_).message, "");
  expect_norms(scale, norm_);
}

TEST_F(NormAssemblyTest, WritesEveryElementType) {
  for (const ElementType type : {ElementType::kBfloat16, ElementType::kFloat16}) {
    HostArray norm(type, kCount);
    ASSERT_EQ(run(0.7, norm).message, "");
    expect_norms(0.7, norm);
  }
}

TEST_F(NormAssemblyTest, InputsMayMixElementTypes) {
  HostArray cross(ElementType::kBfloat16, kCount);
  cross.fill(-2, 0.125, 29);
  HostArray ba(ElementType::kFloat16, kCount);
  ba.fill(0.5, 0.375, 13);
  ASSERT_EQ(norm_assembly(engine_.get(), {w_, {kSize}}, {cross, {kSize}}, {ba, {kSize}}, 0.7,
                          {norm_, {kSize}})
                .message,
            "");
  expect_norms(0.7, norm_);
}

TEST_F(NormAssemblyTest, Float64IsComputedInFloat64) {
  std::array<double, 3> w{0.1, 2.7, 1e-3};
  std::array<double, 3> cross{0.3, -0.9, 0.7};
  std::array<double, 3> ba{1.1, 0.2, 3.3};
  std::array<double, 3> norm{};
  const auto tensor = [](std::array<double, 3>& values) -> Tensor {
    return {values.data(), ElementType::kFloat64, {3}};
  };
  ASSERT_EQ(
      norm_assembly(engine_.get(), tensor(w), tensor(cross), tensor(ba), 0.3, tensor(norm)).message,
      "");
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(norm.at(i), plain_norm<double>(w.at(i), cross.at(i), ba.at(i), 0.3));
  }
}

TEST_F(NormAssemblyTest, NaNIsKeptAndNegativeSquaresBecomeZero) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBfloat16, ElementType::kFloat16}) {
    w_.set(0, nan);
    cross_.set(1, nan);
    ba_.set(2, nan);
    cross_.set(3, -1000);  // the sum is negative
    w_.set(4, infinity);
    w_.set(5, infinity);
    cross_.set(5, -infinity);  // inf - inf
    w_.set(6, -0.0);
    cross_.set(6, 0);
    ba_.set(6, -0.0);
    HostArray norm(type, kCount);
    ASSERT_EQ(run(1, norm).message, "");
    for (const std::size_t i : {0U, 1U, 2U, 5U}) EXPECT_TRUE(std::isnan(norm.get(i))) << i;
    EXPECT_EQ(norm.get(3), 0);
    EXPECT_FALSE(std::signbit(norm.get(3)));
    EXPECT_EQ(norm.get(4), infinity);
    EXPECT_EQ(norm.get(6), 0);
  }
}

TEST_F(NormAssemblyTest, MayBeExactlyAnyInput) {
  for (HostArray* input : {&w_, &cross_, &ba_}) {
    const HostArray kept = *input;
    const Outcome outcome = run(0.7, *input);
    ASSERT_EQ(outcome.message, "");
    const HostArray norm = *input;
    *input = kept;
    expect_norms(0.7, norm);
  }
}

TEST_F(NormAssemblyTest, TakesAnyNumberOfDimensions) {
  HostArray norm(ElementType::kFloat32, 36);
  ASSERT_EQ(norm_assembly(engine_.get(), {w_, {3, 4, 3}}, {cross_, {3, 4, 3}}, {ba_, {3, 4, 3}},
                          0.7, {norm, {3, 4, 3}})
                .message,
            "");
  for (std::size_t i = 0; i < 36; ++i) {
    ASSERT_EQ(norm.get(i), plain_norm<float>(w_.get(i), cross_.get(i), ba_.get(i), 0.7));
  }
}

TEST_F(NormAssemblyTest, NonContiguousTensorsAreRefused) {
  const Tensor apart(cross_.data(), ElementType::kFloat32, {3, 4}, {5, 1});
  const Tensor whole(w_, {3, 4});
  const Tensor ba(ba_, {3, 4});
  const Tensor norm(norm_, {3, 4});
  expect_refused("cross", {&whole, &apart, &ba, &norm});
  const Tensor every_other(ba_.data(), ElementType::kFloat32, {12}, {2});
  const Tensor flat(w_, {12});
  const Tensor flat_norm(norm_, {12});
  expect_refused("ba_norm_sq", {&flat, &flat, &every_other, &flat_norm});
}

TEST_F(NormAssemblyTest, RefusesWrongCalls) {
  const Tensor w(w_, {kSize});
  const Tensor norm(norm_, {kSize});
  expect_refused("w_norm_sq", {nullptr, &w, &w, &norm});
  expect_refused("cross", {&w, nullptr, &w, &norm});
  expect_refused("ba_norm_sq", {&w, &w, nullptr, &norm});
  expect_refused("norm", {&w, &w, &w, nullptr});
  const Tensor shorter(cross_, {kSize - 1});
  expect_refused("cross", {&w, &shorter, &w, &norm});
  const Tensor shifted(w_.data() + 4, ElementType::kFloat32, {kSize - 1});
  const Tensor first(w_, {kSize - 1});
  expect_refused("norm", {&first, &first, &first, &shifted});
  Tensor integers(ba_, {kSize});
  integers->dtype = {kDLInt, 32, 1};
  expect_refused("ba_norm_sq", {&w, &w, &integers, &norm}, DORAJIT_UNSUPPORTED);
}

TEST_F(NormAssemblyTest, EmptyTensorsNeedNoMemory) {
  const Tensor none(nullptr, ElementType::kFloat32, {0});
  EXPECT_EQ(norm_assembly(engine_.get(), none, none, none, 1, none).message, "");
}

}  // namespace
}  // namespace dorajit::bindings
