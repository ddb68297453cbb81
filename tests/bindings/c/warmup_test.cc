// dorajit_warmup: the kernels that it prepares, and the calls that it refuses. The first call of
// every operation tunes it, and has the same results as without tuning.
#include "dorajit/dorajit.hpp"
#include "tests/bindings/c/backward_fixture.h"

namespace dorajit::bindings {
namespace {

class WarmupTest : public BackwardTest {
 protected:
  WarmupTest() {
    tune_at_first_use();
    engine_ = make_engine();
  }

  Outcome warm_up(const char* operation, const Operands& tensors) {
    return bindings::warm_up(engine_.get(), operation, tensors);
  }

  std::int64_t launches() { return statistics_of(engine_.get()).launches; }
  std::int64_t compilations() { return statistics_of(engine_.get()).compilations; }
  std::int64_t tuned() { return statistics_of(engine_.get()).tuned_problems; }
};

TEST_F(WarmupTest, WarmupTunesFromShapesSoThatTheCallDoesNot) {
  const Tensor matrix(nullptr, ElementType::kFloat32, {7, 33});
  const Tensor channels(nullptr, ElementType::kFloat32, {33});
  ASSERT_EQ(warm_up("compose", {matrix.get(), matrix.get(), channels.get(), matrix.get()}).message,
            "");
  EXPECT_EQ(launches(), 0);
  EXPECT_EQ(tuned(), 1);
  const std::int64_t compiled = compilations();
  EXPECT_GT(compiled, 0);

  resize(7, 33);
  ASSERT_EQ(compose(engine_.get(), {d_out_, {7, 33}}, {inner_, {7, 33}}, {gain_, {33}}, kScale,
                    {d_lora_, {7, 33}})
                .message,
            "");
  EXPECT_EQ(launches(), 1);
  EXPECT_EQ(tuned(), 1);
  EXPECT_EQ(compilations(), compiled);
}

TEST_F(WarmupTest, AbsentOperandsArePartOfTheProblem) {
  const Tensor matrix(nullptr, ElementType::kFloat32, {6, 10});
  const Tensor channels(nullptr, ElementType::kFloat32, {10});
  ASSERT_EQ(
      warm_up("backward", {matrix.get(), nullptr, channels.get(), matrix.get(), nullptr, nullptr})
          .message,
      "");
  resize(6, 10);
  const Wanted only_d_lora{.d_base = false, .d_gain = false};
  const std::int64_t compiled = compilations();
  ASSERT_EQ(run(call(only_d_lora)).message, "");
  EXPECT_EQ(compilations(), compiled);
  ASSERT_EQ(run(call()).message, "");
  EXPECT_GT(compilations(), compiled) << "with a sum it is another kernel";
}

TEST_F(WarmupTest, EmptyTensorsCompileNothing) {
  const Tensor none(nullptr, ElementType::kFloat32, {0, 33});
  ASSERT_EQ(warm_up("norm_assembly", {none.get(), none.get(), none.get(), none.get()}).message, "");
  EXPECT_EQ(compilations(), 0);
}

TEST_F(WarmupTest, CallsThatWouldBeRefusedAreRefused) {
  const Tensor matrix(nullptr, ElementType::kFloat32, {7, 33});
  const Tensor narrow(nullptr, ElementType::kFloat32, {32});
  expect_refusal(warm_up("compose", {matrix.get(), matrix.get(), narrow.get(), matrix.get()}),
                 "`gain`");
  EXPECT_EQ(compilations(), 0);
}

TEST_F(WarmupTest, WrongNumbersOfTensorsAndUnknownOperationsAreRefused) {
  const Tensor matrix(nullptr, ElementType::kFloat32, {7, 33});
  const Operands three = {matrix.get(), matrix.get(), matrix.get()};
  expect_refusal(warm_up("compose", three), "4 tensors but 3");
  for (const char* unknown : {"", "composed", "add"}) {
    expect_refusal(warm_up(unknown, three), "`operation`");
  }
  expect_refusal(bindings::warm_up(nullptr, "compose", three), "");
  expect_refusal(outcome_of([&](dorajit_error** error) {
                   return dorajit_warmup(engine_.get(), dorajit_operation_find("compose"), nullptr,
                                         4, nullptr, 0, error);
                 }),
                 "");
}

TEST_F(WarmupTest, WarmupFromCppTunes) {
  Options options;
  options.cache_dir = "";
  dorajit::Engine engine(options);
  const ConstTensorRef matrix(nullptr, {7, 33}, dorajit::ElementType::kFloat32);
  const ConstTensorRef channels(nullptr, {33}, dorajit::ElementType::kFloat32);
  engine.warmup("compose", {matrix, matrix, channels, matrix});
  EXPECT_EQ(engine.statistics().tuned_problems, 1);
  engine.warmup("backward", {matrix, std::nullopt, channels, matrix, matrix, std::nullopt});
  EXPECT_EQ(engine.statistics().tuned_problems, 2);
  EXPECT_THROW(engine.warmup("compose", {matrix, matrix, channels, matrix, matrix, matrix, matrix,
                                         matrix, matrix, matrix}),
               dorajit::Error);
}

TEST_F(WarmupTest, ExplainFromCppNamesTheProblem) {
  const ConstTensorRef matrix(nullptr, {7, 33}, dorajit::ElementType::kFloat32);
  const ConstTensorRef channels(nullptr, {33}, dorajit::ElementType::kFloat32);
  Options options;
  options.cache_dir = "";
  options.tune_policy = TunePolicy::kOff;
  dorajit::Engine engine(options);
  EXPECT_FALSE(engine.explain("compose", {matrix, matrix, channels, matrix}));
  engine.warmup("compose", {matrix, matrix, channels, matrix});
  const auto found = engine.explain("compose", {matrix, matrix, channels, matrix});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->problem, "compose/f32,f32,f32,f32/v1/c33/r3");
  EXPECT_EQ(found->source, "default");
  EXPECT_NE(found->config, "");
  EXPECT_THROW(static_cast<void>(engine.explain("compose", {matrix})), dorajit::Error);
  EXPECT_EQ(engine.statistics().renewed_plans, 0);
}

class TunedOperationsTest : public BackwardTest {
 protected:
  TunedOperationsTest() {
    tune_at_first_use();
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
  const Tensor gain(gain_, {cols_});
  const Tensor out(d_lora_, {rows_, cols_});
  const Tensor out_inner(d_base_, {rows_, cols_});
  ASSERT_EQ(compose(engine_.get(), {.form = Form::kInner,
                                    .lora = &lora,
                                    .base = &base,
                                    .gain = &gain,
                                    .scale = kScale,
                                    .out = &out,
                                    .inner = &out_inner})
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
