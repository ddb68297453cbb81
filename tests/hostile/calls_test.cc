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
    SampleCompose(4, cols).expect_right(make_engine(&options_).get());
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

struct Attack {
  const char* name;
  What what;
  unsigned mode = 0;
  bool is_on_files = false;
};

// GoogleTest finds it by this name. NOLINTNEXTLINE(readability-identifier-naming)
void PrintTo(const Attack& one, std::ostream* out) { *out << one.name; }

class HostileCallsTo : public HostileCalls, public testing::WithParamInterface<Attack> {};

TEST_P(HostileCallsTo, Succeed) {
  const Attack& attack = GetParam();
  if (attack.what == What::kOwner && !hostile::is_root()) {
    GTEST_SKIP() << "only root can give files away";
  }
  apply_to_all(attack.what, attack.mode, attack.is_on_files ? files() : folders_);
  expect_calls_to_succeed();
}

INSTANTIATE_TEST_SUITE_P(Attacks, HostileCallsTo,
                         testing::Values(Attack{"FoldersThatOthersMayWrite", What::kMode, 0777},
                                         Attack{"FoldersOfAnotherUser", What::kOwner},
                                         Attack{"LinkedFolders", What::kLink},
                                         Attack{"FifosInPlaceOfFolders", What::kFifo, 0600},
                                         Attack{"FilesThatOthersMayWrite", What::kMode, 0666, true},
                                         Attack{"FifosInPlaceOfFiles", What::kFifo, 0600, true},
                                         Attack{"FoldersInPlaceOfFiles", What::kDirectory, 0, true},
                                         Attack{"EndlessFiles", What::kEndless, 0, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dorajit::bindings
