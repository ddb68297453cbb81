// A problem, a device and what a source of configs needs to answer for them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "autotune/sources/tuning_config_source.h"
#include "tests/fakes/fake_device.h"
#include "tests/fakes/memory_artifact_store.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/variants.h"

namespace dorajit::autotune {

class SourceTest : public testing::Test {
 protected:
  static launch::Problem problem_of(std::int64_t cols) {
    return launch::make_problem(tests::float_compose(), kernels::DeviceKind::kCpu, {16, cols});
  }

  std::vector<kernels::Config> space() const {
    return kernels::config_space(problem_.variant, device_.info().traits, 1,
                                 kernels::SpaceKind::kSlim);
  }

  TuningSession session() const {
    return {problem_, device_.info(), kernels::SpaceKind::kSlim, device_.clock()};
  }

  // A winner in this environment.
  cache::Winner winner_of(const launch::Problem& problem, const kernels::Config& config) const {
    return {.problem = to_text(problem),
            .device = "fake",
            .environment =
                TuningSession(problem, device_.info(), kernels::SpaceKind::kSlim).environment,
            .config = config,
            .default_config = config,
            .median_ns = 1,
            .default_median_ns = 1,
            .created_unix_s = 1};
  }

  // Another process, as it has a source of its own.
  TuningConfigSource make_source() {
    return {settings_, store_, statistics_, nullptr, device_.clock()};
  }
  launch::ConfigAnswer find(const launch::Problem& problem, launch::KernelCache& kernels) {
    return make_source().find(problem, device_, kernels);
  }
  launch::ConfigAnswer find(const launch::Problem& problem) { return find(problem, kernels_); }
  launch::ConfigAnswer find() { return find(problem_); }
  std::vector<LookupResult> explain() { return make_source().explain(problem_, device_.info()); }

  // Gives the store a shipped database with that winner alone.
  void ship(const cache::Winner& winner) {
    const std::string folder = directory_.file("shipped" + std::to_string(shipped_++));
    cache::TuningStore::open(folder)->record({}, winner);
    store_ = cache::TuningStore::open(settings_.tuning_dir, {.overlays = {folder + "/tuning.db"}});
  }

  cache::TemporaryDirectory directory_;
  Settings settings_;
  int shipped_ = 0;
  std::shared_ptr<cache::TuningStore> store_ = cache::TuningStore::open("");
  Statistics statistics_;
  tests::FakeDevice device_{2};
  tests::MemoryArtifactStore artifacts_;
  launch::KernelCache kernels_{Settings{}, &artifacts_, statistics_};
  launch::Problem problem_ = problem_of(300);
};

}  // namespace dorajit::autotune
