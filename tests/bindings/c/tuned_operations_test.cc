// The first call of every operation tunes it, and has the same results as without tuning.
#include "tests/bindings/c/backward_fixture.h"

namespace dorajit::bindings {
namespace {

class TunedOperationsTest : public BackwardTest {
 protected:
  TunedOperationsTest() {
    set_variable("DORAJIT_CXX", std::nullopt);
    set_variable("DORAJIT_TUNE", "first_use");
    set_variable("DORAJIT_TUNE_SECONDS", "0.1");
    engine_ = make_engine();
  }

  void expect_tuned(std::int64_t problems) {
    const dorajit_statistics statistics = statistics_of(engine_.get());
    EXPECT_EQ(statistics.tuned_problems, problems);
    EXPECT_EQ(statistics.builtin_kernels, 0);
  }
};

TEST_F(TunedOperationsTest, TunedComposeInnerEqualsUntuned) {
  const Tensor lora(d_out_, {rows_, cols_});
  const Tensor base(inner_, {rows_, cols_});
  ASSERT_EQ(compose_inner(engine_.get(), lora, base, {gain_, {cols_}}, kScale,
                          {d_lora_, {rows_, cols_}}, {d_base_, {rows_, cols_}})
                .message,
            "");
  for (std::size_t i = 0; i < d_out_.size(); ++i) {
    ASSERT_EQ(d_lora_.get(i),
              plain_compose(d_out_.get(i), inner_.get(i), gain_.get(i % gain_.size()), kScale));
    ASSERT_EQ(d_base_.get(i), kScale * d_out_.get(i) + inner_.get(i));
  }
  expect_tuned(1);
}

TEST_F(TunedOperationsTest, TunedBackwardWithAndWithoutSumEqualsUntuned) {
  resize(600, 33);
  ASSERT_EQ(run(call()).message, "");
  expect_results();
  expect_tuned(1);
  const Wanted no_sum{.d_gain = false};
  resize(600, 33);
  ASSERT_EQ(run(call(no_sum)).message, "");
  expect_results(no_sum);
  expect_tuned(2);
}

TEST_F(TunedOperationsTest, TunedSumsPerRowEqualUntuned) {
  resize(12, 10);
  const Tensor d_out(d_out_, {3, 4, 2, 5});
  const Tensor inner(inner_, {3, 4, 2, 5});
  const Tensor gain(gain_, {1, 4, 1, 1});
  const Tensor d_gain(d_gain_, {4});
  ASSERT_EQ(run({.d_out = &d_out, .inner = &inner, .gain = &gain, .d_gain = &d_gain}).message, "");
  for (std::size_t channel = 0; channel < 4; ++channel) {
    double sum = 0;
    for (std::size_t i = 0; i < d_out_.size(); ++i) {
      if (i / 10 % 4 == channel) sum += d_out_.get(i) * inner_.get(i);
    }
    ASSERT_EQ(d_gain_.get(channel), sum);
  }
  expect_tuned(1);
}

TEST_F(TunedOperationsTest, TunedSumsOfNoTermsAreZero) {
  const Tensor none(nullptr, ElementType::kFloat32, {0, 10});
  const Tensor gain(gain_, {10});
  const Tensor d_gain(d_gain_, {10});
  ASSERT_EQ(run({.d_out = &none, .inner = &none, .gain = &gain, .d_gain = &d_gain}).message, "");
  const Tensor thin(nullptr, ElementType::kFloat32, {3, 10, 0});
  const Tensor channels(gain_, {10, 1});
  ASSERT_EQ(run({.d_out = &thin, .inner = &thin, .gain = &channels, .d_gain = &d_gain}).message,
            "");
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(d_gain_.get(i), 0);
}

TEST_F(TunedOperationsTest, TunedNormAssemblyEqualsUntuned) {
  ASSERT_EQ(
      norm_assembly(engine_.get(), {gain_, {10}}, {gain_, {10}}, {gain_, {10}}, 0, {d_gain_, {10}})
          .message,
      "");
  expect_tuned(1);
}

}  // namespace
}  // namespace dorajit::bindings
