#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "cache/database/tuning_store.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(TuningClaim, SecondClaimWithinAProcessIsRefused) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  auto claim = store->claim("device", "problem");
  ASSERT_TRUE(claim);
  EXPECT_FALSE(store->claim("device", "problem"));
  EXPECT_FALSE(store->claim("device", "problem", milliseconds(10)));
  EXPECT_TRUE(store->claim("device", "other"));
  EXPECT_TRUE(store->claim("deviceproblem", ""));
  claim.reset();
  EXPECT_TRUE(store->claim("device", "problem"));
}

TEST(TuningClaim, ThreadsTakeTurns) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  std::atomic<int> holders{0};
  std::atomic<int> turns{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        const auto claim = store->claim("device", "problem", seconds(30));
        ASSERT_TRUE(claim);
        EXPECT_EQ(holders.fetch_add(1), 0);
        std::this_thread::sleep_for(milliseconds(1));
        holders.fetch_sub(1);
        turns.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turns.load(), 20);
}

TEST(TuningClaim, OtherProcessesAreRefusedUntilTheHolderDies) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  Pipe held;
  const pid_t child = start_child([&] {
    const auto claim = store->claim("device", "problem");
    CHILD_CHECK(claim);
    held.send('.');
    ::pause();
    return 0;
  });
  char byte = 0;
  ASSERT_TRUE(held.receive(byte));
  EXPECT_FALSE(store->claim("device", "problem"));
  std::thread killer([child] {
    std::this_thread::sleep_for(milliseconds(20));
    ::kill(child, SIGKILL);
  });
  EXPECT_TRUE(store->claim("device", "problem", seconds(30)));
  killer.join();
  EXPECT_EQ(wait_for_child(child), 128 + SIGKILL);
}

TEST(TuningClaim, ForkedChildNeitherKeepsNorReleasesTheClaim) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  auto claim = store->claim("device", "problem");
  ASSERT_TRUE(claim);
  Pipe ready;
  Pipe end;
  const pid_t child = start_child([&] {
    end.close_write();
    TuningClaim inherited = *std::move(claim);
    {
      const TuningClaim dropped = std::move(inherited);
    }
    CHILD_CHECK(!store->claim("device", "problem"));
    ready.send('.');
    char byte = 0;
    (void)end.receive(byte);
    return 0;
  });
  ready.close_write();
  const pid_t keeper = start_child([&] {
    end.close_write();
    char byte = 0;
    (void)end.receive(byte);
    return 0;
  });
  char byte = 0;
  ASSERT_TRUE(ready.receive(byte));
  EXPECT_FALSE(store->claim("device", "problem"));
  claim.reset();
  EXPECT_TRUE(store->claim("device", "problem"));
  end.close_write();
  EXPECT_EQ(wait_for_child(child), 0);
  EXPECT_EQ(wait_for_child(keeper), 0);
}

TEST(TuningClaim, WithoutAUsableFolderEveryClaimIsGranted) {
  const auto memory = TuningStore::open("");
  const auto first = memory->claim("device", "problem");
  EXPECT_TRUE(first);
  EXPECT_TRUE(memory->claim("device", "problem"));

  const TemporaryDirectory directory;
  write_file(directory.file("plain"), "");
  CapturedLog log;
  const auto store = TuningStore::open(directory.file("plain/cache"));
  EXPECT_TRUE(store->claim("device", "problem", seconds(30)));
  EXPECT_TRUE(store->claim("device", "problem"));
  EXPECT_EQ(log.count("tune the same problem"), 1);
}

}  // namespace
}  // namespace dorajit::cache
