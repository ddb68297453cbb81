// The results of dorajit_compose on the CPU, for every layout that it takes.
#include <cmath>
#include <limits>

#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

constexpr double kScale = 0.75;
constexpr std::int64_t kRows = 6;
constexpr std::int64_t kCols = 10;
constexpr auto kCount = static_cast<std::size_t>(kRows * kCols);

class ComposeTest : public CAbiTest {
 protected:
  ComposeTest() {
    lora_.fill(-2, 0.25, 17);
    base_.fill(1, -0.125, 23);
    gain_.fill(0.984375, 0.0078125, 5);
    out_.poison();
  }

  [[nodiscard]] float expected(std::size_t index) const {
    return plain_compose(lora_.get(index), base_.get(index),
                         gain_.get(index % static_cast<std::size_t>(kCols)), kScale);
  }

  void expect_composed(const HostArray& out) const {
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(out.get(i), expected(i)) << "element " << i;
  }

  HostArray lora_{ElementType::kFloat32, kCount};
  HostArray base_{ElementType::kFloat32, kCount};
  HostArray gain_{ElementType::kFloat32, static_cast<std::size_t>(kCols)};
  HostArray out_{ElementType::kFloat32, kCount};
  EngineHandle engine_ = make_engine();
};

TEST_F(ComposeTest, EqualsThePlainExpression) {
  const Outcome outcome = compose(engine_.get(), {lora_, {kRows, kCols}}, {base_, {kRows, kCols}},
                                  {gain_, {kCols}}, kScale, {out_, {kRows, kCols}});
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  expect_composed(out_);
  EXPECT_EQ(statistics_of(engine_.get()).launches, 1);
}

TEST_F(ComposeTest, LeadingDimensionsAreRows) {
  const Outcome outcome = compose(engine_.get(), {lora_, {2, 1, 3, kCols}}, {base_, {3, 2, kCols}},
                                  {gain_, {1, 1, kCols}}, kScale, {out_, {kRows, kCols}});
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  expect_composed(out_);
}

TEST_F(ComposeTest, OneDimensionIsOneRow) {
  const Outcome outcome = compose(engine_.get(), {lora_, {kCols}}, {base_, {kCols}},
                                  {gain_, {kCols}}, kScale, {out_, {kCols}});
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  for (std::size_t i = 0; i < kCols; ++i) EXPECT_EQ(out_.get(i), expected(i));
}

TEST_F(ComposeTest, StridedRowsAreAccepted) {
  constexpr std::int64_t kStride = 16;
  HostArray wide(ElementType::kFloat32, kRows * kStride);
  wide.poison();
  const std::vector<std::byte> before = wide.bytes();
  const Tensor out(wide.data(), ElementType::kFloat32, {2, 3, kCols}, {3 * kStride, kStride, 1});
  const Outcome outcome = compose(engine_.get(), {lora_, {2, 3, kCols}}, {base_, {2, 3, kCols}},
                                  {gain_, {kCols}}, kScale, out);
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  HostArray untouched(ElementType::kFloat32, wide.size());
  untouched.poison();
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const std::size_t row = i / kStride;
    const std::size_t column = i % kStride;
    const double want = column < kCols ? expected(row * kCols + column) : untouched.get(i);
    ASSERT_EQ(wide.get(i), want) << "element " << i;
  }
}

TEST_F(ComposeTest, StridesOfDimensionsOfSizeOneAreIgnored) {
  const Tensor lora(lora_.data(), ElementType::kFloat32, {1, kRows, 1, kCols}, {-7, kCols, 0, 1});
  const Outcome outcome = compose(engine_.get(), lora, {base_, {kRows, kCols}}, {gain_, {kCols}},
                                  kScale, {out_, {kRows, kCols}});
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  expect_composed(out_);
}

TEST_F(ComposeTest, OneColumnMayHaveAnyColumnStride) {
  const Tensor lora(lora_.data(), ElementType::kFloat32, {kRows, 1}, {kCols, 99});
  const Tensor out(out_.data(), ElementType::kFloat32, {kRows, 1}, {1, 1});
  const Outcome outcome =
      compose(engine_.get(), lora, {base_, {kRows, 1}}, {gain_, {1}}, kScale, out);
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  for (std::size_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(out_.get(row),
              plain_compose(lora_.get(row * kCols), base_.get(row), gain_.get(0), kScale));
  }
}

TEST_F(ComposeTest, ByteOffsetIsAddedToTheAddress) {
  Tensor lora(lora_.data() - 12, ElementType::kFloat32, {kRows, kCols});
  lora->byte_offset = 12;
  const Outcome outcome = compose(engine_.get(), lora, {base_, {kRows, kCols}}, {gain_, {kCols}},
                                  kScale, {out_, {kRows, kCols}});
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  expect_composed(out_);
}

TEST_F(ComposeTest, PinnedMemoryIsHostMemory) {
  Tensor lora(lora_, {kRows, kCols});
  lora->device = {kDLCUDAHost, 3};
  const Outcome outcome = compose(engine_.get(), lora, {base_, {kRows, kCols}}, {gain_, {kCols}},
                                  kScale, {out_, {kRows, kCols}});
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  expect_composed(out_);
}

TEST_F(ComposeTest, WorksInPlace) {
  HostArray lora = lora_;
  HostArray base = base_;
  ASSERT_EQ(compose(engine_.get(), {lora, {kRows, kCols}}, {base_, {kRows, kCols}},
                    {gain_, {kCols}}, kScale, {lora, {kRows, kCols}})
                .message,
            "");
  expect_composed(lora);
  ASSERT_EQ(compose(engine_.get(), {lora_, {kRows, kCols}}, {base, {kRows, kCols}},
                    {gain_, {kCols}}, kScale, {base, {kRows, kCols}})
                .message,
            "");
  expect_composed(base);
}

TEST_F(ComposeTest, ColumnWindowsOfOneBufferDoNotOverlap) {
  HostArray buffer(ElementType::kFloat32, kRows * 2 * kCols);
  for (std::size_t i = 0; i < kCount; ++i) {
    buffer.set(i / kCols * 2 * kCols + i % kCols, lora_.get(i));
  }
  const Tensor left(buffer.data(), ElementType::kFloat32, {kRows, kCols}, {2 * kCols, 1});
  const Tensor right(buffer.data() + sizeof(float) * kCols, ElementType::kFloat32, {kRows, kCols},
                     {2 * kCols, 1});
  const Outcome outcome =
      compose(engine_.get(), left, {base_, {kRows, kCols}}, {gain_, {kCols}}, kScale, right);
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t row_start = i / kCols * 2 * kCols;
    ASSERT_EQ(buffer.get(row_start + i % kCols), lora_.get(i));
    ASSERT_EQ(buffer.get(row_start + kCols + i % kCols), expected(i));
  }
}

TEST_F(ComposeTest, MixedElementTypesAreAccepted) {
  HostArray lora(ElementType::kBfloat16, kCount);
  HostArray base(ElementType::kFloat16, kCount);
  HostArray out(ElementType::kFloat16, kCount);
  lora.fill(-2, 0.25, 17);
  base.fill(1, -0.125, 23);
  const Outcome outcome = compose(engine_.get(), {lora, {kRows, kCols}}, {base, {kRows, kCols}},
                                  {gain_, {kCols}}, kScale, {out, {kRows, kCols}});
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  HostArray rounded(ElementType::kFloat16, kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    rounded.set(i, expected(i));
    ASSERT_EQ(out.get(i), rounded.get(i)) << "element " << i;
  }
}

TEST_F(ComposeTest, Float64IsComputedInFloat64) {
  HostArray arrays[] = {HostArray(ElementType::kFloat64, kCols),
                        HostArray(ElementType::kFloat64, kCols),
                        HostArray(ElementType::kFloat64, kCols)};
  auto& [lora, base, gain] = arrays;
  lora.fill(0.1, 0.3, 7);
  base.fill(0.7, 0.1, 7);
  gain.fill(0.99, 0.001, 7);
  HostArray out(ElementType::kFloat64, kCols);
  const Outcome outcome = compose(engine_.get(), {lora, {kCols}}, {base, {kCols}}, {gain, {kCols}},
                                  0.1, {out, {kCols}});
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  for (std::size_t i = 0; i < kCols; ++i) {
    const double scaled_lora = 0.1 * lora.get(i);
    EXPECT_EQ(out.get(i), (gain.get(i) - 1) * base.get(i) + gain.get(i) * scaled_lora);
  }
}

TEST_F(ComposeTest, NonFiniteScalePropagates) {
  for (const double scale :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e300}) {
    lora_.set(0, 1);
    const Outcome outcome = compose(engine_.get(), {lora_, {kRows, kCols}}, {base_, {kRows, kCols}},
                                    {gain_, {kCols}}, scale, {out_, {kRows, kCols}});
    ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
    EXPECT_FALSE(std::isfinite(out_.get(0)));
    EXPECT_EQ(std::isnan(out_.get(0)), std::isnan(scale));
  }
}

TEST_F(ComposeTest, EmptyTensorsNeedNoMemory) {
  const Tensor none(nullptr, ElementType::kFloat32, {0, kCols});
  EXPECT_EQ(compose(engine_.get(), none, none, {gain_, {kCols}}, kScale, none).status, DORAJIT_OK);
  const Tensor thin(nullptr, ElementType::kFloat32, {kRows, 0});
  const Tensor no_gain(nullptr, ElementType::kFloat32, {0});
  EXPECT_EQ(compose(engine_.get(), thin, thin, no_gain, kScale, thin).status, DORAJIT_OK);
  const Tensor strided(nullptr, ElementType::kFloat32, {2, 0, kCols}, {5, 3, 7});
  EXPECT_EQ(compose(engine_.get(), strided, none, {gain_, {kCols}}, kScale, none).status,
            DORAJIT_OK);
  EXPECT_EQ(statistics_of(engine_.get()).launches, 0);
}

TEST_F(ComposeTest, NullErrorDropsTheMessage) {
  const Tensor lora(lora_, {kRows, kCols});
  const Tensor gain(gain_, {kCols});
  EXPECT_EQ(dorajit_compose(engine_.get(), nullptr, lora.get(), nullptr, gain.get(), kScale,
                            lora.get(), nullptr),
            DORAJIT_INVALID_ARGUMENT);
}

TEST_F(ComposeTest, SuccessClearsTheError) {
  const Tensor lora(lora_, {kRows, kCols});
  const Tensor gain(gain_, {kCols});
  auto* error = reinterpret_cast<dorajit_error*>(&lora_);
  EXPECT_EQ(dorajit_compose(engine_.get(), nullptr, lora.get(), lora.get(), gain.get(), kScale,
                            Tensor(out_, {kRows, kCols}).get(), &error),
            DORAJIT_OK);
  EXPECT_EQ(error, nullptr);
}

}  // namespace
}  // namespace dorajit::bindings
