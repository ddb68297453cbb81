// d_gain of gains with channels along the rows.
#include <cmath>

#include "tests/bindings/c/operation_calls.h"

namespace dorajit::bindings {
namespace {

class ChannelSumsTest : public CAbiTest {
 protected:
  // Runs the whole backward pass over [samples, channels, area] in the shapes given, and compares
  // it with plain loops; all sums are exact.
  void expect_sums(std::int64_t samples, std::int64_t channels, std::int64_t area,
                   const Shape& matrix, const Shape& gain_shape,
                   ElementType sum_type = ElementType::kFloat32) {
    const auto count = static_cast<std::size_t>(samples * channels * area);
    HostArray d_out(ElementType::kBfloat16, count);
    HostArray inner(ElementType::kFloat32, count);
    HostArray gain(ElementType::kFloat32, static_cast<std::size_t>(channels));
    HostArray d_lora(ElementType::kFloat32, count);
    HostArray d_base(ElementType::kFloat32, count);
    HostArray d_gain(sum_type, static_cast<std::size_t>(channels));
    d_out.fill(-2, 0.25, 17);
    inner.fill(1, -0.125, 23);
    gain.fill(0.984375, 0.0078125, 7);
    d_gain.poison();
    const WorkspaceAnswer needed = backward_workspace({d_out, matrix}, {gain, gain_shape});
    ASSERT_EQ(needed.outcome.message, "");
    std::vector<std::byte> workspace(static_cast<std::size_t>(needed.bytes), std::byte{0xA5});
    const Tensor tensors[] = {{d_out, matrix},  {inner, matrix},  {gain, gain_shape},
                              {d_lora, matrix}, {d_base, matrix}, {d_gain, gain_shape}};
    const Outcome outcome =
        backward(engine_.get(), {.d_out = &tensors[0],
                                 .inner = &tensors[1],
                                 .gain = &tensors[2],
                                 .scale = 0.75,
                                 .d_lora = &tensors[3],
                                 .d_base = &tensors[4],
                                 .d_gain = &tensors[5],
                                 .workspace = workspace.empty() ? nullptr : workspace.data(),
                                 .workspace_bytes = needed.bytes});
    ASSERT_EQ(outcome.message, "");
    std::vector<double> sums(gain.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t channel = i / static_cast<std::size_t>(area) % gain.size();
      ASSERT_EQ(d_lora.get(i), gain.get(channel) * 0.75 * d_out.get(i)) << "element " << i;
      ASSERT_EQ(d_base.get(i), (gain.get(channel) - 1) * d_out.get(i)) << "element " << i;
      sums[channel] += inner.get(i) * d_out.get(i);
    }
    HostArray want(sum_type, gain.size());
    for (std::size_t channel = 0; channel < sums.size(); ++channel) {
      want.set(channel, sums[channel]);
      ASSERT_EQ(d_gain.get(channel), want.get(channel)) << "channel " << channel;
    }
  }

  void expect_all_sums() {
    expect_sums(3, 4, 10, {3, 4, 2, 5}, {1, 4, 1, 1});
    expect_sums(3, 4, 10, {3, 4, 2, 5}, {4, 1, 1}, ElementType::kBfloat16);
    expect_sums(1, 5, 7, {5, 7}, {5, 1});
    expect_sums(2, 3, 1, {2, 3, 1, 1}, {1, 3, 1, 1});
    // Partial sums along the samples, with a ragged last one.
    expect_sums(300, 3, 1, {300, 3, 1, 1}, {1, 3, 1, 1});
    expect_sums(37, 3, 49, {37, 3, 7, 7}, {1, 3, 1, 1}, ElementType::kFloat16);
    // Partial sums along the columns, and along both.
    expect_sums(1, 2, 5000, {1, 2, 50, 100}, {1, 2, 1, 1});
    expect_sums(3, 2, 9001, {3, 2, 9001}, {2, 1});
  }

  EngineHandle engine_ = make_engine();
};

TEST_F(ChannelSumsTest, SumsEqualPlainLoops) { expect_all_sums(); }

TEST_F(ChannelSumsTest, CompiledKernelsEqualPlainLoops) {
  set_variable("DORAJIT_CXX", std::nullopt);
  engine_ = make_engine();
  expect_all_sums();
  EXPECT_EQ(statistics_of(engine_.get()).builtin_kernels, 0);
}

TEST_F(ChannelSumsTest, OneChannelSumsAllElements) {
  expect_sums(1, 1, 120, {3, 4, 2, 5}, {1, 1, 1, 1});
  expect_sums(1, 1, 120, {12, 10}, {1, 1});
  expect_sums(1, 1, 120, {120, 1}, {1, 1});
  expect_sums(1, 1, 700, {700, 1}, {1});
}

TEST_F(ChannelSumsTest, SumsOfNoTermsAreZero) {
  HostArray gain(ElementType::kFloat32, 4);
  HostArray d_gain(ElementType::kFloat32, 4);
  const Tensor channels(gain, {1, 4, 1, 1});
  const Tensor sums(d_gain, {1, 4, 1, 1});
  const auto expect_zeros = [&](const Shape& shape) {
    const Tensor none(nullptr, ElementType::kFloat32, shape);
    d_gain.poison();
    EXPECT_EQ(backward_workspace(none, channels).bytes, 0);
    const Outcome outcome = backward(
        engine_.get(),
        {.d_out = &none, .inner = &none, .gain = &channels, .d_lora = &none, .d_gain = &sums});
    ASSERT_EQ(outcome.message, "");
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(d_gain.get(i), 0);
      EXPECT_FALSE(std::signbit(d_gain.get(i)));
    }
  };
  expect_zeros({0, 4, 2, 5});
  expect_zeros({3, 4, 0, 5});
  expect_zeros({3, 4, 2, 0});
}

TEST_F(ChannelSumsTest, ZeroChannelsAreAccepted) {
  const Tensor none(nullptr, ElementType::kFloat32, {3, 0, 2, 5});
  const Tensor channels(nullptr, ElementType::kFloat32, {1, 0, 1, 1});
  EXPECT_EQ(backward_workspace(none, channels).bytes, 0);
  EXPECT_EQ(
      backward(
          engine_.get(),
          {.d_out = &none, .inner = &none, .gain = &channels, .d_base = &none, .d_gain = &channels})
          .message,
      "");
}

TEST_F(ChannelSumsTest, WrongLengthsAreRefused) {
  HostArray matrix(ElementType::kFloat32, 120);
  HostArray gain(ElementType::kFloat32, 12);
  HostArray d_gain(ElementType::kFloat32, 12);
  d_gain.poison();
  const std::vector<std::byte> before = d_gain.bytes();
  const Tensor d_out(matrix, {3, 4, 2, 5});
  const Tensor channels(gain, {1, 4, 1, 1});
  for (const std::int64_t wrong : {1, 2, 3, 5, 12}) {
    const Tensor sums(d_gain, {wrong});
    expect_refusal(backward(engine_.get(),
                            {.d_out = &d_out, .inner = &d_out, .gain = &channels, .d_gain = &sums}),
                   "`d_gain`");
    EXPECT_EQ(d_gain.bytes(), before);
  }
}

}  // namespace
}  // namespace dorajit::bindings
