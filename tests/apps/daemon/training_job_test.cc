// Eight processes that start cold beside a daemon: none tunes, all get the winners.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "cache/database/tuning_store.h"
#include "kernel_templates/config.h"
#include "tests/apps/daemon/running_daemon.h"
#include "tests/apps/daemon/training_process.h"
#include "tests/fakes/child_process.h"

namespace dorajit::tests {
namespace {

using std::chrono::milliseconds;

constexpr int kProcesses = 8;

enum class MayTune { kNo, kYes };

// Steps of an engine that may tune, after which a new one begins: an engine that has waited for
// another's tuning in vain keeps the default; the next one looks again.
constexpr int kStepsOfAnEngine = 500;

// Steps until all winners are in use; the exit code of the child.
int train(const RunningDaemon& daemon, MayTune may_tune) {
  std::optional<TrainingProcess> process;
  int steps = 0;
  const bool won = becomes_true([&] {
    if (!process || (may_tune == MayTune::kYes && steps++ % kStepsOfAnEngine == 0)) {
      process.emplace(daemon.cache_dir(), daemon.socket_folder());
    }
    if (!process->step()) ::_exit(3);
    return process->has_all_winners();
  });
  CHILD_CHECK(won);
  CHILD_CHECK(process->step());
  CHILD_CHECK(may_tune == MayTune::kYes || !process->has_tuned());
  return 0;
}

// Each config of a problem has been tried once.
void expect_tuned_once(const RunningDaemon& daemon) {
  const auto store = cache::TuningStore::open(daemon.cache_dir());
  for (const cache::Winner& winner : store->winners()) {
    std::set<std::string> tried;
    for (const auto& trial : store->trials(winner.device, winner.problem)) {
      EXPECT_TRUE(tried.insert(to_text(trial.config)).second) << "a problem was tuned twice";
    }
  }
}

std::size_t winner_count(const RunningDaemon& daemon) {
  return cache::TuningStore::open(daemon.cache_dir())->winners().size();
}

TEST(TrainingJobProcesses, DaemonTunesForAllRanks) {
  const RealDaemon daemon;
  PlainClient client(daemon);
  cache::run_at_once(kProcesses, [&](int) { return train(daemon, MayTune::kNo); });
  // Who asks when a problem has just been tuned is answered from the database.
  EXPECT_GE(client.status()["tuned"], std::ssize(kTrainedCols));
  EXPECT_EQ(winner_count(daemon), kTrainedCols.size());
  expect_tuned_once(daemon);
}

TEST(TrainingJobProcesses, WithoutADaemonOneRankTunes) {
  const RealDaemon nobody({}, false);
  cache::run_at_once(2, [&](int) {
    // An engine that has waited for the other's tuning in vain keeps the default; the next one
    // looks again.
    CHILD_CHECK(becomes_true([&] {
      TrainingProcess process(nobody.cache_dir(), nobody.socket_folder());
      return process.step() && process.has_all_winners();
    }));
    return 0;
  });
  EXPECT_EQ(winner_count(nobody), kTrainedCols.size());
  expect_tuned_once(nobody);
}

TEST(TrainingJobProcesses, PolicyDaemonNeverTunesInProcess) {
  const RealDaemon nobody({}, false);
  cache::run_at_once(1, [&](int) {
    TrainingProcess process(nobody.cache_dir(), nobody.socket_folder(), TunePolicy::kDaemon);
    CHILD_CHECK(process.step());
    CHILD_CHECK(!process.has_tuned() && !process.has_all_winners());
    return 0;
  });
  EXPECT_EQ(winner_count(nobody), 0U);
}

// Kills the daemon at random moments while a job starts, until it has all it wants. Who meets a
// problem in a moment without a daemon tunes it.
void kill_again_and_again(int kills) {
  RealDaemon daemon;
  std::minstd_rand random(static_cast<unsigned>(kills));
  int done = 0;
  std::size_t winners = 0;
  while (done < kills) {
    std::vector<pid_t> job;
    for (int i = 0; i < 2; ++i)
      job.push_back(cache::start_child([&] { return train(daemon, MayTune::kYes); }));
    for (int i = 0; i < 4 && done < kills; ++i, ++done) {
      std::this_thread::sleep_for(milliseconds(random() % 600));
      daemon.signal(SIGKILL);
      EXPECT_EQ(daemon.wait(), 128 + SIGKILL) << daemon.log();
      const std::size_t now = winner_count(daemon);
      EXPECT_GE(now, winners) << "a winner was lost";
      winners = now;
      daemon.start();
    }
    for (const pid_t process : job) EXPECT_EQ(cache::wait_for_child(process), 0);
    EXPECT_EQ(winner_count(daemon), kTrainedCols.size());
    // All that is left is known to the next daemon, and nothing waits for a lease of the dead.
    PlainClient client(daemon);
    client.send(cpu_request(kTrainedCols.front()));
    client.expect<autotune::protocol::Tuned>();
    winners = 0;
    std::filesystem::remove_all(daemon.cache_dir());
    daemon.signal(SIGTERM);
    EXPECT_EQ(daemon.wait(), 0);
    daemon.start();
  }
}

TEST(TrainingJobProcesses, SurvivesADaemonThatIsKilledAFewTimes) { kill_again_and_again(4); }

TEST(TrainingJobProcesses, SurvivesADaemonThatIsKilledInFull) { kill_again_and_again(200); }

}  // namespace
}  // namespace dorajit::tests
