// dorajit_warmup: the kernels that it prepares, and the calls that it refuses.
#include <array>

#include "dorajit/dorajit.hpp"
#include "tests/bindings/c/backward_fixture.h"

namespace dorajit::bindings {
namespace {

class WarmupTest : public BackwardTest {
 protected:
  WarmupTest() {
    set_variable("DORAJIT_CXX", std::nullopt);
    set_variable("DORAJIT_TUNE", "first_use");
    set_variable("DORAJIT_TUNE_SECONDS", "0.1");
    engine_ = make_engine();
  }

  template <std::size_t kCount>
  Outcome warmup(const char* operation, const std::array<const DLTensor*, kCount>& tensors) {
    dorajit_error* error = nullptr;
    const dorajit_status status = dorajit_warmup(engine_.get(), dorajit_operation_find(operation),
                                                 tensors.data(), kCount, nullptr, 0, &error);
    return take(status, error);
  }

  std::int64_t launches() { return statistics_of(engine_.get()).launches; }
  std::int64_t compilations() { return statistics_of(engine_.get()).compilations; }
  std::int64_t tuned() { return statistics_of(engine_.get()).tuned_problems; }
};

TEST_F(WarmupTest, WarmupTunesFromShapesSoThatTheCallDoesNot) {
  const Tensor matrix(nullptr, ElementType::kFloat32, {7, 33});
  const Tensor channels(nullptr, ElementType::kFloat32, {33});
  ASSERT_EQ(warmup("compose", std::array{matrix.get(), matrix.get(), channels.get(), matrix.get()})
                .message,
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
  ASSERT_EQ(warmup("backward", std::array<const DLTensor*, 6>{matrix.get(), nullptr, channels.get(),
                                                              matrix.get(), nullptr, nullptr})
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
  ASSERT_EQ(
      warmup("norm_assembly", std::array{none.get(), none.get(), none.get(), none.get()}).message,
      "");
  EXPECT_EQ(compilations(), 0);
}

TEST_F(WarmupTest, CallsThatWouldBeRefusedAreRefused) {
  const Tensor matrix(nullptr, ElementType::kFloat32, {7, 33});
  const Tensor narrow(nullptr, ElementType::kFloat32, {32});
  const Outcome outcome =
      warmup("compose", std::array{matrix.get(), matrix.get(), narrow.get(), matrix.get()});
  EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT);
  EXPECT_NE(outcome.message.find("`gain`"), std::string::npos) << outcome.message;
  EXPECT_EQ(compilations(), 0);
}

TEST_F(WarmupTest, WrongNumbersOfTensorsAndUnknownOperationsAreRefused) {
  const Tensor matrix(nullptr, ElementType::kFloat32, {7, 33});
  const std::array three = {matrix.get(), matrix.get(), matrix.get()};
  const Outcome too_few = warmup("compose", three);
  EXPECT_EQ(too_few.status, DORAJIT_INVALID_ARGUMENT);
  EXPECT_NE(too_few.message.find("4 tensors but 3"), std::string::npos) << too_few.message;
  for (const char* unknown : {"", "composed", "add"}) {
    const Outcome outcome = warmup(unknown, three);
    EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT);
    EXPECT_NE(outcome.message.find("`operation`"), std::string::npos) << outcome.message;
  }
  dorajit_error* error = nullptr;
  dorajit_status status = dorajit_warmup(engine_.get(), dorajit_operation_find("compose"), nullptr,
                                         4, nullptr, 0, &error);
  EXPECT_EQ(take(status, error).status, DORAJIT_INVALID_ARGUMENT);
  status = dorajit_warmup(nullptr, dorajit_operation_find("compose"), three.data(), 3, nullptr, 0,
                          &error);
  EXPECT_EQ(take(status, error).status, DORAJIT_INVALID_ARGUMENT);
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

}  // namespace
}  // namespace dorajit::bindings
