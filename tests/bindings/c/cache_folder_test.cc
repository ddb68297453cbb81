// An engine finds the kernels and winners of an earlier one, and goes on when the cache folder is
// removed, replaced or made unwritable.
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

class KeptResultsTest : public CAbiTest {
 protected:
  KeptResultsTest() {
    set_variable("DORAJIT_CXX", std::nullopt);
    options_.struct_size = sizeof options_;
    options_.tune_policy = DORAJIT_TUNE_FIRST_USE;
    options_.tune_seconds = 0.2;
  }

  void expect_composes(dorajit_engine* engine) { SampleCompose(4, 16).expect_right(engine); }

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

namespace fs = std::filesystem;

class ChangingCacheFolder : public CAbiTest {
 protected:
  ChangingCacheFolder() {
    set_variable("DORAJIT_CXX", std::nullopt);
    options_.struct_size = sizeof options_;
    options_.tune_policy = DORAJIT_TUNE_FIRST_USE;
    options_.tune_seconds = 0.05;
    engine_ = make_engine(&options_);
    expect_composes(4);
  }

  // The first call of a problem: compiles the kernel if it is not in the cache, and tunes.
  void expect_composes(std::int64_t cols) { SampleCompose(4, cols).expect_right(engine_.get()); }

  dorajit_statistics statistics() const { return statistics_of(engine_.get()); }
  [[nodiscard]] std::string folder() const { return cache_dir(); }

  dorajit_engine_options options_{};
  EngineHandle engine_;
};

TEST_F(ChangingCacheFolder, RemovedFolderIsCreatedAgain) {
  fs::remove_all(folder());
  expect_composes(8);
  EXPECT_EQ(statistics().tuned_problems, 2);
  EXPECT_TRUE(fs::exists(folder() + "/tuning.db"));
  expect_composes(4);
  EXPECT_EQ(statistics().tuned_problems, 2) << "what was tuned before is known";
}

TEST_F(ChangingCacheFolder, FolderReplacedByAFileFailsNoCall) {
  fs::rename(folder(), folder() + ".aside");
  std::ofstream(folder()) << "something else";
  expect_composes(8);
  expect_composes(4);
  EXPECT_EQ(statistics().tuned_problems, 2);
  fs::remove(folder());
  fs::rename(folder() + ".aside", folder());
  expect_composes(12);
  const EngineHandle later = std::exchange(engine_, make_engine(&options_));
  expect_composes(4);
  expect_composes(12);
  EXPECT_EQ(statistics().tuned_problems, 0) << "both were kept";
}

TEST_F(ChangingCacheFolder, ReplacementFolderIsUsedFromThenOn) {
  fs::rename(folder(), folder() + ".aside");
  fs::create_directory(folder());
  fs::permissions(folder(), fs::perms::owner_all);
  expect_composes(8);
  engine_ = make_engine(&options_);
  expect_composes(8);
  EXPECT_EQ(statistics().tuned_problems, 0);
  fs::remove_all(folder() + ".aside");
}

}  // namespace
}  // namespace dorajit::bindings
