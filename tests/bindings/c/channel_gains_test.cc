// Gains with channels along the rows, as in convolutions: [1, C, 1, 1] over [N, C, H, W].
#include <cmath>
#include <functional>

#include "runtime/base/log.h"
#include "tests/bindings/c/operation_calls.h"

namespace dorajit::bindings {
namespace {

constexpr double kScale = 0.75;
constexpr std::int64_t kSamples = 3;
constexpr std::int64_t kChannels = 4;
constexpr std::int64_t kArea = 10;  // 2 x 5
constexpr auto kCount = static_cast<std::size_t>(kSamples * kChannels * kArea);

using Shape = std::initializer_list<std::int64_t>;

class ChannelGainsTest : public CAbiTest {
 protected:
  ChannelGainsTest() {
    lora_.fill(-2, 0.25, 17);
    base_.fill(1, -0.125, 23);
    gain_.fill(0.984375, 0.0078125, 7);
    out_.poison();
    inner_.poison();
  }

  static std::size_t channel_of(std::size_t i) { return i / kArea % kChannels; }

  [[nodiscard]] float expected(std::size_t i, std::size_t channel) const {
    return plain_compose(lora_.get(i), base_.get(i), gain_.get(channel), kScale);
  }

  void expect_composed(const std::function<std::size_t(std::size_t)>& channel) const {
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(out_.get(i), expected(i, channel(i))) << "element " << i;
    }
  }

  Outcome run(Shape matrix, Shape gain) {
    out_.poison();
    return compose(engine_.get(), {lora_, matrix}, {base_, matrix}, {gain_, gain}, kScale,
                   {out_, matrix});
  }

  void expect_refused(const Tensor& lora, const Tensor& gain, const std::string& argument,
                      const std::string& part, dorajit_status status = DORAJIT_INVALID_ARGUMENT) {
    out_.poison();
    const std::vector<std::byte> before = out_.bytes();
    const Outcome outcome = compose(engine_.get(), lora, lora, gain, kScale, {out_, {3, 4, 2, 5}});
    EXPECT_EQ(outcome.status, status);
    EXPECT_NE(outcome.message.find("`" + argument + "`"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find(part), std::string::npos) << outcome.message;
    EXPECT_EQ(out_.bytes(), before);
  }

  HostArray lora_{ElementType::kFloat32, kCount};
  HostArray base_{ElementType::kFloat32, kCount};
  HostArray gain_{ElementType::kFloat32, 64};
  HostArray out_{ElementType::kFloat32, kCount};
  HostArray inner_{ElementType::kFloat32, kCount};
  EngineHandle engine_ = make_engine();
};

TEST_F(ChannelGainsTest, ChannelsAlongTheRowsEqualPlainLoops) {
  for (const bool compiled : {false, true}) {
    if (compiled) {
      set_variable("DORAJIT_CXX", std::nullopt);
      engine_ = make_engine();
    }
    ASSERT_EQ(run({3, 4, 2, 5}, {1, 4, 1, 1}).message, "");
    expect_composed(channel_of);
    ASSERT_EQ(run({3, 4, 2, 5}, {4, 1, 1}).message, "");
    expect_composed(channel_of);
    ASSERT_EQ(run({3, 4, 10}, {4, 1}).message, "");
    expect_composed(channel_of);
    ASSERT_EQ(run({12, 10}, {12, 1}).message, "");
    expect_composed([](std::size_t i) { return i / kArea; });
    ASSERT_EQ(run({3, 4, 2, 5}, {3, 1, 1, 1}).message, "");
    expect_composed([](std::size_t i) { return i / (kChannels * kArea); });
    ASSERT_EQ(run({3, 40, 1, 1}, {1, 40, 1, 1}).message, "");
    expect_composed([](std::size_t i) { return i % 40; });
  }
}

// A magnitude stored as [out, 1] over a square matrix is broadcast along the rows, which its caller
// may not intend: it warns.
TEST_F(ChannelGainsTest, ColumnVectorOverSquareMatrixWarnsOnce) {
  // Make the kernels first, so that their messages are not captured.
  ASSERT_EQ(run({10, 10}, {10}).message, "");
  ASSERT_EQ(run({12, 10}, {12, 1}).message, "");
  set_log_level(LogLevel::kWarning);
  const LogCapture capture;
  ASSERT_EQ(run({10, 10}, {10}).message, "");
  ASSERT_EQ(run({10, 10}, {1, 10}).message, "");
  ASSERT_EQ(run({12, 10}, {12, 1}).message, "");
  ASSERT_EQ(run({1, 10, 10}, {1, 10, 1}).message, "");
  ASSERT_EQ(run({10, 10}, {1, 1}).message, "");
  EXPECT_EQ(capture.lines().size(), 0U) << capture.text();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(run({10, 10}, {10, 1}).message, "");
    for (std::size_t at = 0; at < 100; ++at) ASSERT_EQ(out_.get(at), expected(at, at / 10));
  }
  ASSERT_EQ(capture.lines().size(), 1U) << capture.text();
  EXPECT_EQ(capture.lines()[0].level, DORAJIT_LOG_WARNING);
  EXPECT_NE(capture.lines()[0].message.find("`gain` is [10, 1]"), std::string::npos);
  set_log_level(LogLevel::kOff);
}

TEST_F(ChannelGainsTest, ChannelsAlongTheColumnsEqualPlainLoops) {
  ASSERT_EQ(run({3, 4, 2, 5}, {1, 1, 1, 5}).message, "");
  expect_composed([](std::size_t i) { return i % 5; });
  ASSERT_EQ(run({3, 40}, {1, 1, 1, 40}).message, "");
  expect_composed([](std::size_t i) { return i % 40; });
}

TEST_F(ChannelGainsTest, OneChannelIsBroadcastToAllElements) {
  const auto first = [](std::size_t) { return std::size_t{0}; };
  ASSERT_EQ(run({3, 4, 2, 5}, {1, 1, 1, 1}).message, "");
  expect_composed(first);
  ASSERT_EQ(run({12, 10}, {1, 1}).message, "");
  expect_composed(first);
  ASSERT_EQ(run({120, 1}, {1, 1}).message, "");
  expect_composed(first);
  ASSERT_EQ(run({120, 1}, {1}).message, "");
  expect_composed(first);
}

TEST_F(ChannelGainsTest, StridesOfDimensionsOfSizeOneAreIgnored) {
  const Tensor gain(gain_.data(), ElementType::kFloat32, {1, 4, 1, 1}, {-9, 1, 0, 77});
  const Tensor lora(lora_, {3, 4, 2, 5});
  ASSERT_EQ(compose(engine_.get(), lora, {base_, {3, 4, 2, 5}}, gain, kScale, {out_, {3, 4, 2, 5}})
                .message,
            "");
  expect_composed(channel_of);
}

TEST_F(ChannelGainsTest, StridedRowsAreAccepted) {
  HostArray wide(ElementType::kFloat32, std::size_t{12} * 13);
  wide.poison();
  const double untouched = wide.get(0);
  const Tensor out(wide.data(), ElementType::kFloat32, {3, 4, 2, 5}, {52, 13, 5, 1});
  ASSERT_EQ(compose(engine_.get(), {lora_, {3, 4, 2, 5}}, {base_, {3, 4, 2, 5}}, {gain_, {4, 1, 1}},
                    kScale, out)
                .message,
            "");
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const std::size_t element = i / 13 * 10 + i % 13;
    const double want = i % 13 < 10 ? expected(element, channel_of(element)) : untouched;
    ASSERT_EQ(wide.get(i), want) << "element " << i;
  }
}

TEST_F(ChannelGainsTest, ComposeInnerBroadcastsLikeCompose) {
  ASSERT_EQ(
      compose_inner(engine_.get(), {lora_, {3, 4, 2, 5}}, {base_, {3, 4, 2, 5}},
                    {gain_, {1, 4, 1, 1}}, kScale, {out_, {3, 4, 2, 5}}, {inner_, {3, 4, 2, 5}})
          .message,
      "");
  expect_composed(channel_of);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(inner_.get(i), kScale * lora_.get(i) + base_.get(i));
  }
}

TEST_F(ChannelGainsTest, RefusesGainsOfAnotherNumberOfChannels) {
  const Tensor lora(lora_, {3, 4, 2, 5});
  // 12 rows are a multiple of all but the last, which must not make them valid.
  for (const std::int64_t wrong : {2, 3, 6, 12, 5}) {
    expect_refused(lora, {gain_, {1, wrong, 1, 1}}, "gain", "channels");
    expect_refused(lora, {gain_, {wrong, 1, 1}}, "gain", "channels");
  }
  expect_refused({lora_, {12, 10}}, {gain_, {4, 1}}, "gain", "channels");
}

TEST_F(ChannelGainsTest, RefusesChannelsAlongTwoDimensions) {
  const Tensor lora(lora_, {3, 4, 2, 5});
  expect_refused(lora, {gain_, {3, 4, 1, 1}}, "gain", "one dimension", DORAJIT_UNSUPPORTED);
  expect_refused(lora, {gain_, {4, 1, 5}}, "gain", "one dimension", DORAJIT_UNSUPPORTED);
}

TEST_F(ChannelGainsTest, RefusesGainsOfMoreDimensions) {
  expect_refused({lora_, {12, 10}}, {gain_, {12, 1, 1}}, "gain", "more dimensions");
  expect_refused({lora_, {10}}, {gain_, {10, 1}}, "gain", "more dimensions");
}

TEST_F(ChannelGainsTest, RefusesRowsThatAreNotContiguous) {
  const Tensor gain(gain_, {1, 4, 1, 1});
  const Tensor gap(lora_.data(), ElementType::kFloat32, {3, 4, 2, 5}, {48, 12, 6, 1});
  expect_refused(gap, gain, "lora", "dimensions 2 and 3");
  const Tensor channels_last(lora_.data(), ElementType::kFloat32, {3, 4, 2, 5}, {40, 1, 20, 4});
  expect_refused(channels_last, gain, "lora", "last dimension");
  const Tensor fewer_channels(lora_.data(), ElementType::kFloat32, {3, 4, 2, 5}, {50, 10, 5, 1});
  expect_refused(fewer_channels, gain, "lora", "dimensions 0 and 1");
  const Tensor lora(lora_, {3, 4, 2, 5});
  const Tensor apart(gain_.data(), ElementType::kFloat32, {1, 4, 1, 1}, {8, 2, 1, 1});
  expect_refused(lora, apart, "gain", ".contiguous()");
}

TEST_F(ChannelGainsTest, ErrorsOfMatricesAreReportedBeforeThoseOfTheGain) {
  const Tensor gain(gain_, {1, 4, 1, 1});
  Tensor lora(lora_, {3, 4, 2, 5});
  lora->ndim = 0;
  expect_refused(lora, gain, "lora", "0 dimensions");
  lora->ndim = 4;
  lora->shape[1] = -4;
  expect_refused(lora, gain, "lora", "negative size");
  Tensor negative(gain_, {1, 4, 1, 1});
  negative->shape[1] = -4;
  const Tensor good(lora_, {3, 4, 2, 5});
  expect_refused(good, negative, "gain", "negative size");
}

TEST_F(ChannelGainsTest, EmptyTensorsNeedNoMemory) {
  const auto run_empty = [&](Shape matrix, Shape gain) {
    const Tensor none(nullptr, ElementType::kFloat32, matrix);
    return compose(engine_.get(), none, none, {nullptr, ElementType::kFloat32, gain}, kScale, none)
        .message;
  };
  EXPECT_EQ(run_empty({0, 4, 2, 5}, {1, 4, 1, 1}), "");
  EXPECT_EQ(run_empty({3, 4, 0, 5}, {1, 4, 1, 1}), "");
  EXPECT_EQ(run_empty({3, 0, 2, 5}, {1, 0, 1, 1}), "");
}

}  // namespace
}  // namespace dorajit::bindings
