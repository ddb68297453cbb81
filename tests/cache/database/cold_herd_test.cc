// Many processes that start on a cold cache folder at the same time.
#include <gtest/gtest.h>

#include <cstdio>

#include "cache/database/tuning_store.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

// On a busy machine, each of many processes may have to wait long for the others.
const TuningStoreOptions kPatient{.busy_wait = std::chrono::minutes(10)};

TEST(ColdHerdProcesses, ManyColdStartsAllUseTheDatabase) {
  constexpr int kProcesses = 64;
  for (int round = 0; round < 3; ++round) {
    const TemporaryDirectory directory;
    run_at_once(kProcesses, [&](int process) {
      CapturedLog log;
      const auto store = TuningStore::open(directory.file("cache"), kPatient);
      for (int i = 0; i < 4; ++i) {
        (void)store->find_winner(kDevice, sample_problem(i));
        (void)store->find_history(kDevice, {}).bad_trials;
        if (process % 8 == 0) store->record(sample_trials(i, 3), sample_winner(i));
        (void)store->find_winner(kDevice, sample_problem(i), LockWait::kLong);
      }
      for (const std::string& line : log.lines()) std::fprintf(stderr, "%s\n", line.c_str());
      CHILD_CHECK(log.size() == 0);
      return 0;
    });
  }
}

}  // namespace
}  // namespace dorajit::cache
