// An engine finds the kernels and winners of an earlier one.
#include <filesystem>
#include <thread>

#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

class KeptResultsTest : public CAbiTest {
 protected:
  KeptResultsTest() {
    set_variable("DORAJIT_CXX", std::nullopt);
    lora_.fill(1, 0.5, 19);
    base_.fill(2, 0.25, 11);
    gain_.fill(0.5, 0.125, 7);
    options_.struct_size = sizeof options_;
    options_.tune_policy = DORAJIT_TUNE_FIRST_USE;
    options_.tune_seconds = 0.2;
  }

  void expect_composes(dorajit_engine* engine) {
    HostArray out(ElementType::kFloat32, 64);
    const Outcome outcome =
        compose(engine, {lora_, {4, 16}}, {base_, {4, 16}}, {gain_, {16}}, 2, {out, {4, 16}});
    ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
    for (std::size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(out.get(i), plain_compose(lora_.get(i), base_.get(i), gain_.get(i % 16), 2));
    }
  }

  HostArray lora_{ElementType::kFloat32, 64};
  HostArray base_{ElementType::kFloat32, 64};
  HostArray gain_{ElementType::kFloat32, 16};
  dorajit_engine_options options_{};
};

TEST_F(KeptResultsTest, SecondEngineNeitherCompilesNorTunes) {
  {
    const EngineHandle engine = make_engine(&options_);
    expect_composes(engine.get());
    const dorajit_statistics statistics = statistics_of(engine.get());
    EXPECT_GT(statistics.compilations, 0);
    EXPECT_EQ(statistics.tuned_problems, 1);
    EXPECT_GT(statistics.trials, 0);
    EXPECT_EQ(statistics.builtin_kernels, 0);
  }
  const EngineHandle engine = make_engine(&options_);
  expect_composes(engine.get());
  const dorajit_statistics statistics = statistics_of(engine.get());
  EXPECT_EQ(statistics.compilations, 0);
  EXPECT_EQ(statistics.trials, 0);
  EXPECT_EQ(statistics.tuned_problems, 0);
  EXPECT_EQ(statistics.artifact_hits, 1);
}

TEST_F(KeptResultsTest, NoCacheFolderWritesNothing) {
  options_.cache_dir = "";
  const EngineHandle engine = make_engine(&options_);
  expect_composes(engine.get());
  EXPECT_EQ(statistics_of(engine.get()).tuned_problems, 1);
  EXPECT_FALSE(std::filesystem::exists(cache_dir()));
}

TEST_F(KeptResultsTest, TuningOffTunesNothing) {
  options_.tune_policy = DORAJIT_TUNE_OFF;
  const EngineHandle engine = make_engine(&options_);
  expect_composes(engine.get());
  expect_composes(engine.get());
  const dorajit_statistics statistics = statistics_of(engine.get());
  EXPECT_EQ(statistics.trials, 0);
  EXPECT_EQ(statistics.compilations, 1);
  EXPECT_EQ(statistics.launches, 2);
}

TEST_F(KeptResultsTest, ConcurrentFirstCallsCompileOnce) {
  options_.tune_policy = DORAJIT_TUNE_OFF;
  const EngineHandle engine = make_engine(&options_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { expect_composes(engine.get()); });
  for (std::thread& thread : threads) thread.join();
  const dorajit_statistics statistics = statistics_of(engine.get());
  EXPECT_EQ(statistics.compilations, 1);
  EXPECT_EQ(statistics.launches, 4);
}

}  // namespace
}  // namespace dorajit::bindings
