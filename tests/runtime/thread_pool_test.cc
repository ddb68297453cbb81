#include "runtime/device/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace dorajit::device {
namespace {

using Counts = std::array<std::atomic<int>, 16>;

void count(void* context, int worker) {
  ++(*static_cast<Counts*>(context))[static_cast<std::size_t>(worker)];
}

void expect_once(const Counts& counts, int workers) {
  for (int worker = 0; worker < 16; ++worker) {
    EXPECT_EQ(counts[static_cast<std::size_t>(worker)], worker < workers ? 1 : 0) << worker;
  }
}

TEST(ThreadPool, EveryWorkerIsCalledOnceEvenBeyondTheThreads) {
  ThreadPool pool(4);
  for (const int workers : {0, 1, 2, 4, 9}) {
    Counts counts{};
    pool.run(workers, count, &counts);
    expect_once(counts, workers);
  }
}

TEST(ThreadPool, ForkedChildRunsJobsItselfAndDestroysThePoolWithoutWaiting) {
  auto pool = std::make_unique<ThreadPool>(4);
  Counts counts{};
  pool->run(4, count, &counts);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a hang must not outlive the test
    Counts own{};
    pool->run(4, count, &own);
    pool.reset();
    bool right = true;
    for (std::size_t worker = 0; worker < 4; ++worker) right = right && own[worker] == 1;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(ThreadPoolConcurrency, CallersTakeTurns) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&pool] {
      for (int i = 0; i < 200; ++i) {
        Counts counts{};
        pool.run(1 + i % 3, count, &counts);
        expect_once(counts, 1 + i % 3);
      }
    });
  }
  for (auto& caller : callers) caller.join();
}

}  // namespace
}  // namespace dorajit::device
