// Complete calls with a cache folder that other users have modified (docs/security.md).
#include <filesystem>
#include <vector>

#include "tests/bindings/c/c_abi_fixture.h"
#include "tests/fakes/captured_log.h"
#include "tests/hostile/attacks.h"

namespace dorajit::bindings {
namespace {

namespace fs = std::filesystem;
using hostile::What;

class HostileCalls : public CAbiTest {
 protected:
  HostileCalls() {
    set_variable("DORAJIT_CXX", std::nullopt);
    set_variable("DORAJIT_LOG",
                 std::nullopt);  // the level stays set for other tests of this process
    options_.struct_size = sizeof options_;
    options_.tune_policy = DORAJIT_TUNE_FIRST_USE;
    options_.tune_seconds = 0.05;
    expect_composes(4);
    for (const char* name : {"notes", "journal"}) fs::create_directory(cache_dir() + "/" + name);
    for (const char* name : {"notes", "locks", "journal"}) {
      folders_.push_back(cache_dir() + "/" + name);
      fs::permissions(folders_.back(), fs::perms::owner_all);
    }
    cache::write_file(folders_[0] + "/" + std::string(32, 'a'), "planted");
    cache::write_file(folders_[2] + "/1-1-1.entry", "planted");
  }

  // Calls of a later process: of a tuned problem, and of a new one.
  void expect_calls_to_succeed() {
    expect_composes(4);
    expect_composes(8);
  }

  void expect_composes(std::int64_t cols) {
    const EngineHandle engine = make_engine(&options_);
    SampleCompose call(4, cols);
    const Outcome outcome = call.run(engine.get());
    ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
    for (std::size_t i = 0; i < static_cast<std::size_t>(4 * cols); ++i) {
      const auto column = i % static_cast<std::size_t>(cols);
      ASSERT_EQ(call.out.get(i),
                plain_compose(call.lora.get(i), call.base.get(i), call.gain.get(column), 2));
    }
  }

  std::vector<std::string> files() const {
    std::vector<std::string> found;
    for (const std::string& path : folders_) {
      for (const auto& entry : fs::directory_iterator(path)) found.push_back(entry.path());
    }
    return found;
  }

  void apply_to_all(What what, unsigned mode, const std::vector<std::string>& targets) {
    for (const std::string& target : targets) {
      hostile::apply(what, mode, target, folder() + "/elsewhere" + std::to_string(++moved_));
    }
  }

  const cache::CapturedLog quiet_;
  dorajit_engine_options options_{};
  std::vector<std::string> folders_;
  int moved_ = 0;
};

TEST_F(HostileCalls, SucceedWithFoldersThatOthersMayWrite) {
  apply_to_all(What::kMode, 0777, folders_);
  expect_calls_to_succeed();
}

TEST_F(HostileCalls, SucceedWithFoldersOfAnotherUser) {
  if (!hostile::is_root()) GTEST_SKIP() << "only root can give files away";
  apply_to_all(What::kOwner, 0, folders_);
  expect_calls_to_succeed();
}

TEST_F(HostileCalls, SucceedWithLinkedFolders) {
  apply_to_all(What::kLink, 0, folders_);
  expect_calls_to_succeed();
}

TEST_F(HostileCalls, SucceedWithFifosInPlaceOfFolders) {
  apply_to_all(What::kFifo, 0600, folders_);
  expect_calls_to_succeed();
}

TEST_F(HostileCalls, SucceedWithFilesThatOthersMayWrite) {
  apply_to_all(What::kMode, 0666, files());
  expect_calls_to_succeed();
}

TEST_F(HostileCalls, SucceedWithFifosInPlaceOfFiles) {
  apply_to_all(What::kFifo, 0600, files());
  expect_calls_to_succeed();
}

TEST_F(HostileCalls, SucceedWithFoldersInPlaceOfFiles) {
  apply_to_all(What::kDirectory, 0, files());
  expect_calls_to_succeed();
}

TEST_F(HostileCalls, SucceedWithEndlessFiles) {
  apply_to_all(What::kEndless, 0, files());
  expect_calls_to_succeed();
}

}  // namespace
}  // namespace dorajit::bindings
