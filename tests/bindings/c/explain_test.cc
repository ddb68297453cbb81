// dorajit_explain and dorajit_explain_at: the config of a problem, its source, and later changes of
// them.
#include <array>
#include <utility>

#include "bindings/c/engine_handle.h"
#include "dorajit/own_kernel.h"
#include "kernel_templates/config.h"
#include "kernel_templates/spaces.h"
#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

class ExplainTest : public CAbiTest {
 protected:
  static Outcome explain(dorajit_engine* engine, dorajit_explanation& explanation,
                         const char* operation = "compose") {
    const Tensor matrix(nullptr, ElementType::kFloat32, {7, 33});
    const Tensor gain(nullptr, ElementType::kFloat32, {33});
    return bindings::explain(engine, operation,
                             {matrix.get(), matrix.get(), gain.get(), matrix.get()}, explanation);
  }

  static Outcome warm_up(dorajit_engine* engine, std::int64_t cols = 33) {
    const Tensor matrix(nullptr, ElementType::kFloat32, {7, cols});
    const Tensor gain(nullptr, ElementType::kFloat32, {cols});
    return bindings::warm_up(engine, "compose",
                             {matrix.get(), matrix.get(), gain.get(), matrix.get()});
  }

  static Outcome explain_at(const dorajit_engine* engine, std::int64_t index,
                            dorajit_explanation* plan) {
    return outcome_of(
        [&](dorajit_error** error) { return dorajit_explain_at(engine, index, plan, error); });
  }

  static dorajit_explanation plan_of(const dorajit_engine* engine, std::int64_t index) {
    dorajit_explanation plan{};
    plan.struct_size = sizeof plan;
    EXPECT_EQ(explain_at(engine, index, &plan).message, "");
    return plan;
  }
};

TEST_F(ExplainTest, ExplanationIsEmptyBeforeTheFirstCall) {
  const EngineHandle engine = make_engine();
  dorajit_explanation explanation{};
  ASSERT_EQ(explain(engine.get(), explanation).message, "");
  EXPECT_STREQ(explanation.problem, "");
  EXPECT_STREQ(explanation.config, "");
  EXPECT_STREQ(explanation.source, "");
  EXPECT_EQ(statistics_of(engine.get()).builtin_kernels, 0);
}

TEST_F(ExplainTest, NamesProblemConfigAndSource) {
  const EngineHandle engine = make_engine();
  ASSERT_EQ(warm_up(engine.get()).message, "");
  dorajit_explanation explanation{};
  ASSERT_EQ(explain(engine.get(), explanation).message, "");
  EXPECT_STREQ(explanation.problem, "compose/f32,f32,f32,f32/v1/c33/r3");
  EXPECT_TRUE(kernels::parse_config(explanation.config)) << explanation.config;
  EXPECT_STREQ(explanation.source, "default");
}

TEST_F(ExplainTest, ProblemNeedsNoEngineAndNoDevice) {
  const dorajit_operation* const compose = dorajit_operation_find("compose");
  std::array<char, 64> text{};
  const auto ask = [&](Tensor matrix, std::size_t capacity, std::int32_t gpu = -1) {
    Tensor gain(nullptr, ElementType::kFloat32, {matrix->shape[1]});
    if (gpu >= 0) {
      for (Tensor* one : {&matrix, &gain}) {
        (*one)->device = {.device_type = kDLCUDA, .device_id = gpu};
      }
    }
    const std::array tensors = {matrix.get(), matrix.get(), gain.get(), matrix.get()};
    const double scale = 1;
    return outcome_of([&](dorajit_error** error) {
             return dorajit_problem(compose, tensors.data(), 4, &scale, 1, text.data(), capacity,
                                    error);
           })
        .message;
  };
  const EngineHandle engine = make_engine();
  ASSERT_EQ(warm_up(engine.get()).message, "");
  ASSERT_EQ(ask({nullptr, ElementType::kFloat32, {7, 33}}, text.size()), "");
  EXPECT_STREQ(text.data(), plan_of(engine.get(), 0).problem);
  // No machine has that many GPUs.
  ASSERT_EQ(ask({nullptr, ElementType::kFloat32, {7, 64}}, text.size(), 1 << 20), "");
  EXPECT_STREQ(text.data(), "compose/f32,f32,f32,f32/v4/c64/r3");
  EXPECT_NE(ask({nullptr, ElementType::kFloat32, {7, 33}}, 33).find("`capacity` is 33"),
            std::string::npos);
  ASSERT_EQ(ask({nullptr, ElementType::kFloat32, {0, 33}}, text.size()), "");
  EXPECT_STREQ(text.data(), "") << "an empty call launches nothing";
}

TEST_F(ExplainTest, PlansListEveryProblemInOrder) {
  const EngineHandle engine = make_engine();
  EXPECT_STREQ(plan_of(engine.get(), 0).problem, "");
  for (const std::int64_t cols : {33, 65, 33}) ASSERT_EQ(warm_up(engine.get(), cols).message, "");
  const dorajit_explanation first = plan_of(engine.get(), 0);
  dorajit_explanation explanation{};
  ASSERT_EQ(explain(engine.get(), explanation).message, "");
  EXPECT_STREQ(first.problem, explanation.problem);
  EXPECT_STREQ(first.config, explanation.config);
  EXPECT_STREQ(first.source, "default");
  EXPECT_EQ(first.device.device_type, kDLCPU);
  EXPECT_EQ(first.device.device_id, 0);
  EXPECT_TRUE(std::string_view(first.fingerprint).starts_with("cpu/")) << first.fingerprint;
  EXPECT_EQ(first.renewals, 0);
  EXPECT_STREQ(plan_of(engine.get(), 1).problem, "compose/f32,f32,f32,f32/v1/c65/r3");
  EXPECT_STREQ(plan_of(engine.get(), 2).problem, "");
  EXPECT_STREQ(plan_of(engine.get(), 2).fingerprint, "");
}

TEST_F(ExplainTest, PlansRefuseWrongArguments) {
  const EngineHandle engine = make_engine();
  ASSERT_EQ(warm_up(engine.get()).message, "");
  dorajit_explanation plan{};
  plan.struct_size = sizeof plan;
  expect_refusal(explain_at(nullptr, 0, &plan), "`engine`");
  expect_refusal(explain_at(engine.get(), 0, nullptr), "`explanation`");
  expect_refusal(explain_at(engine.get(), -1, &plan), "`index` is -1");
  plan.struct_size = 8;
  expect_refusal(explain_at(engine.get(), 0, &plan), "sizeof(dorajit_explanation)");
}

TEST_F(ExplainTest, StructOfAnOlderCallerIsFilledUpToItsSize) {
  const EngineHandle engine = make_engine();
  ASSERT_EQ(warm_up(engine.get()).message, "");
  dorajit_explanation plan{};
  plan.struct_size = offsetof(dorajit_explanation, fingerprint);
  plan.renewals = -1;
  ASSERT_EQ(explain_at(engine.get(), 0, &plan).message, "");
  EXPECT_STREQ(plan.source, "default");
  EXPECT_EQ(plan.fingerprint, nullptr);
  EXPECT_EQ(plan.renewals, -1);
}

TEST_F(ExplainTest, NextEngineFindsTunedWinnerInTheDatabase) {
  tune_at_first_use();
  std::string tuned;
  for (const std::string source : {"tuned", "user database"}) {
    const EngineHandle engine = make_engine();
    ASSERT_EQ(warm_up(engine.get()).message, "");
    dorajit_explanation explanation{};
    ASSERT_EQ(explain(engine.get(), explanation).message, "");
    EXPECT_EQ(explanation.source, source);
    if (tuned.empty()) tuned = explanation.config;
    EXPECT_EQ(explanation.config, tuned);
  }
}

TEST_F(ExplainTest, RefusesWrongArguments) {
  const EngineHandle engine = make_engine();
  dorajit_explanation explanation{};
  expect_refusal(explain(nullptr, explanation), "`engine`");
  expect_refusal(explain(engine.get(), explanation, "composed"), "`operation`");
  const auto explain_nothing = [&](dorajit_explanation* into) {
    return outcome_of([&](dorajit_error** error) {
      return dorajit_explain(engine.get(), dorajit_operation_find("compose"), nullptr, 4, nullptr,
                             0, into, error);
    });
  };
  expect_refusal(explain_nothing(&explanation), "0 are given");
  expect_refusal(explain_nothing(nullptr), "`explanation`");
  explanation.struct_size = 8;
  expect_refusal(explain_nothing(&explanation), "sizeof(dorajit_explanation)");
}

// Returns the default config, and a winner from the database after it has arrived.
class ArrivingWinner final : public launch::ConfigSource {
 public:
  launch::ConfigAnswer find(const launch::Problem& problem, device::Device& device,
                            launch::KernelCache&) override {
    problem_ = problem;
    device_ = &device;
    return {.config = kernels::default_config(problem.variant, device.info().traits,
                                              problem.vector_width),
            .origin = has_arrived_ ? launch::ConfigOrigin::kUserDatabase
                                   : launch::ConfigOrigin::kDefault};
  }
  void set_listener(Listener listener) override { listener_ = std::move(listener); }

  void arrive() {
    has_arrived_ = true;
    look_again();
  }
  void look_again() { listener_(problem_, *device_); }

 private:
  bool has_arrived_ = false;
  launch::Problem problem_;
  device::Device* device_ = nullptr;
  Listener listener_;
};

TEST_F(ExplainTest, LaterWinnerIsCountedAndExplained) {
  auto source = std::make_unique<ArrivingWinner>();
  ArrivingWinner& winner = *source;
  Settings settings;
  settings.host_compiler = "none";
  const EngineHandle engine(new dorajit_engine(
      settings, {.store = nullptr,
                 .engine = std::make_unique<dorajit::Engine>(
                     settings, std::make_unique<Statistics>(), nullptr, std::move(source))}));
  ASSERT_EQ(warm_up(engine.get()).message, "");
  dorajit_explanation before{};
  ASSERT_EQ(explain(engine.get(), before).message, "");
  EXPECT_STREQ(before.source, "default");
  EXPECT_EQ(statistics_of(engine.get()).renewed_plans, 0);

  winner.arrive();
  dorajit_explanation after{};
  ASSERT_EQ(explain(engine.get(), after).message, "");
  EXPECT_STREQ(after.source, "user database");
  EXPECT_EQ(statistics_of(engine.get()).renewed_plans, 1);
  EXPECT_STREQ(before.source, "default") << "strings live as long as the engine";
  winner.look_again();
  EXPECT_STREQ(plan_of(engine.get(), 0).source, "user database");
  EXPECT_EQ(plan_of(engine.get(), 0).renewals, 1) << "the second look-up has changed nothing";
  EXPECT_EQ(statistics_of(engine.get()).renewed_plans, 1);
}

}  // namespace
}  // namespace dorajit::bindings
