// The cache folder is removed, replaced or made unwritable while an engine uses it.
#include <filesystem>
#include <fstream>

#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

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
  void expect_composes(std::int64_t cols) {
    SampleCompose call(4, cols);
    const Outcome outcome = call.run(engine_.get());
    ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
    for (std::size_t i = 0; i < static_cast<std::size_t>(4 * cols); ++i) {
      const auto column = i % static_cast<std::size_t>(cols);
      ASSERT_EQ(call.out.get(i),
                plain_compose(call.lora.get(i), call.base.get(i), call.gain.get(column), 2));
    }
  }

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
