// The results of dorajit_compose_inner on the CPU, and the calls that it refuses.
#include <cmath>

#include "tests/bindings/c/operation_calls.h"

namespace dorajit::bindings {
namespace {

constexpr double kScale = 0.75;
constexpr std::int64_t kRows = 5;
constexpr std::int64_t kCols = 9;
constexpr auto kCount = static_cast<std::size_t>(kRows * kCols);

class ComposeInnerTest : public CAbiTest {
 protected:
  ComposeInnerTest() {
    lora_.fill(-2, 0.25, 17);
    base_.fill(1, -0.125, 23);
    gain_.fill(0.984375, 0.0078125, 5);
    out_.poison();
    inner_.poison();
  }

  [[nodiscard]] float expected_out(std::size_t i) const {
    return plain_compose(lora_.get(i), base_.get(i), gain_.get(i % kCols), kScale);
  }

  [[nodiscard]] float expected_inner(std::size_t i) const {
    const float scaled_lora = static_cast<float>(kScale) * static_cast<float>(lora_.get(i));
    return scaled_lora + static_cast<float>(base_.get(i));
  }

  void expect_results(const HostArray& out, const HostArray& inner) const {
    HostArray want_out(out.type(), kCount);
    HostArray want_inner(inner.type(), kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      want_out.set(i, expected_out(i));
      want_inner.set(i, expected_inner(i));
      ASSERT_EQ(out.get(i), want_out.get(i)) << "element " << i;
      ASSERT_EQ(inner.get(i), want_inner.get(i)) << "element " << i;
    }
  }

  Outcome run(HostArray& lora, HostArray& base, HostArray& out, HostArray& inner) {
    return compose_inner(engine_.get(), {lora, {kRows, kCols}}, {base, {kRows, kCols}},
                         {gain_, {kCols}}, kScale, {out, {kRows, kCols}}, {inner, {kRows, kCols}});
  }

  void expect_refused(const std::string& argument, HostArray& out, const Tensor& inner) {
    const std::vector<std::byte> before = out.bytes();
    const std::vector<std::byte> inner_before = inner_.bytes();
    const Outcome outcome =
        compose_inner(engine_.get(), {lora_, {kRows, kCols}}, {base_, {kRows, kCols}},
                      {gain_, {kCols}}, kScale, {out, {kRows, kCols}}, inner);
    EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT);
    EXPECT_TRUE(outcome.message.starts_with("compose_inner: ")) << outcome.message;
    EXPECT_NE(outcome.message.find("`" + argument + "`"), std::string::npos) << outcome.message;
    EXPECT_EQ(out.bytes(), before);
    EXPECT_EQ(inner_.bytes(), inner_before);
  }

  HostArray lora_{ElementType::kFloat32, kCount};
  HostArray base_{ElementType::kFloat32, kCount};
  HostArray gain_{ElementType::kFloat32, static_cast<std::size_t>(kCols)};
  HostArray out_{ElementType::kFloat32, kCount};
  HostArray inner_{ElementType::kFloat32, kCount};
  EngineHandle engine_ = make_engine();
};

TEST_F(ComposeInnerTest, EqualsThePlainExpressions) {
  ASSERT_EQ(run(lora_, base_, out_, inner_).message, "");
  expect_results(out_, inner_);
  EXPECT_EQ(statistics_of(engine_.get()).launches, 1);
}

TEST_F(ComposeInnerTest, OutHasTheBitsOfCompose) {
  lora_.set(3, std::nextafter(1.0F, 2.0F));
  base_.set(3, 1.0F / 3);
  ASSERT_EQ(run(lora_, base_, out_, inner_).message, "");
  HostArray composed(ElementType::kFloat32, kCount);
  ASSERT_EQ(compose(engine_.get(), {lora_, {kRows, kCols}}, {base_, {kRows, kCols}},
                    {gain_, {kCols}}, kScale, {composed, {kRows, kCols}})
                .message,
            "");
  EXPECT_EQ(out_.bytes(), composed.bytes());
}

TEST_F(ComposeInnerTest, EachOutputHasItsOwnElementType) {
  for (const ElementType type : {ElementType::kBfloat16, ElementType::kFloat16}) {
    HostArray out(type, kCount);
    ASSERT_EQ(run(lora_, base_, out, inner_).message, "");
    expect_results(out, inner_);
    HostArray inner(type, kCount);
    ASSERT_EQ(run(lora_, base_, out_, inner).message, "");
    expect_results(out_, inner);
  }
}

TEST_F(ComposeInnerTest, Float64IsComputedInFloat64) {
  HostArray arrays[] = {
      HostArray(ElementType::kFloat64, kCols), HostArray(ElementType::kFloat64, kCols),
      HostArray(ElementType::kFloat64, kCols), HostArray(ElementType::kFloat64, kCols),
      HostArray(ElementType::kFloat64, kCols)};
  auto& [lora, base, gain, out, inner] = arrays;
  lora.fill(0.1, 0.3, 7);
  base.fill(0.7, 0.1, 7);
  gain.fill(0.99, 0.001, 7);
  const Outcome outcome = compose_inner(engine_.get(), {lora, {kCols}}, {base, {kCols}},
                                        {gain, {kCols}}, 0.1, {out, {kCols}}, {inner, {kCols}});
  ASSERT_EQ(outcome.message, "");
  for (std::size_t i = 0; i < kCols; ++i) {
    const double scaled_lora = 0.1 * lora.get(i);
    EXPECT_EQ(out.get(i), (gain.get(i) - 1) * base.get(i) + gain.get(i) * scaled_lora);
    EXPECT_EQ(inner.get(i), scaled_lora + base.get(i));
  }
}

TEST_F(ComposeInnerTest, EitherOutputMayBeEitherInput) {
  for (const bool out_is_lora : {true, false}) {
    HostArray lora = lora_;
    HostArray base = base_;
    HostArray& out = out_is_lora ? lora : base;
    HostArray& inner = out_is_lora ? base : lora;
    ASSERT_EQ(run(lora, base, out, inner).message, "");
    expect_results(out, inner);
  }
  HostArray lora = lora_;
  ASSERT_EQ(run(lora, base_, out_, lora).message, "");
  expect_results(out_, lora);
}

TEST_F(ComposeInnerTest, StridedRowsAreAccepted) {
  constexpr std::int64_t kStride = 11;
  HostArray wide(ElementType::kFloat32, kRows * kStride);
  wide.poison();
  const double untouched = wide.get(0);
  const Tensor inner(wide.data(), ElementType::kFloat32, {kRows, kCols}, {kStride, 1});
  ASSERT_EQ(compose_inner(engine_.get(), {lora_, {kRows, kCols}}, {base_, {kRows, kCols}},
                          {gain_, {kCols}}, kScale, {out_, {kRows, kCols}}, inner)
                .message,
            "");
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const std::size_t column = i % kStride;
    const double want = column < kCols ? expected_inner(i / kStride * kCols + column) : untouched;
    ASSERT_EQ(wide.get(i), want) << "element " << i;
  }
}

TEST_F(ComposeInnerTest, OverlappingOutputsAreRefused) {
  expect_refused("out", out_, {out_, {kRows, kCols}});
  expect_refused("out", lora_, {lora_, {kRows, kCols}});
  const Tensor shifted(out_.data() + 4, ElementType::kFloat32, {kRows, kCols});
  expect_refused("inner", out_, shifted);
  const Tensor shifted_base(base_.data() + 4, ElementType::kFloat32, {kRows, kCols});
  expect_refused("inner", out_, shifted_base);
}

TEST_F(ComposeInnerTest, MissingInnerIsRefused) {
  const Tensor matrix(lora_, {kRows, kCols});
  const Tensor gain(gain_, {kCols});
  const Tensor out(out_, {kRows, kCols});
  const std::vector<std::byte> before = out_.bytes();
  dorajit_error* error = nullptr;
  const dorajit_status status =
      dorajit_compose_inner(engine_.get(), nullptr, matrix.get(), matrix.get(), gain.get(), kScale,
                            out.get(), nullptr, &error);
  const Outcome outcome = take(status, error);
  EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT);
  EXPECT_NE(outcome.message.find("`inner`"), std::string::npos) << outcome.message;
  EXPECT_EQ(out_.bytes(), before);
}

TEST_F(ComposeInnerTest, DifferentShapesAreRefused) {
  const Tensor short_inner(inner_.data(), ElementType::kFloat32, {kRows - 1, kCols});
  expect_refused("inner", out_, short_inner);
}

TEST_F(ComposeInnerTest, EmptyTensorsNeedNoMemory) {
  const Tensor none(nullptr, ElementType::kFloat32, {0, kCols});
  EXPECT_EQ(compose_inner(engine_.get(), none, none, {gain_, {kCols}}, kScale, none, none).message,
            "");
  EXPECT_EQ(statistics_of(engine_.get()).launches, 0);
}

}  // namespace
}  // namespace dorajit::bindings
