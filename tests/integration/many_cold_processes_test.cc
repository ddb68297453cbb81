// 64 processes with several threads that start at once on one cold cache directory. Uses only the
// public interface.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <dorajit/dorajit.hpp>
#include <filesystem>
#include <span>
#include <thread>
#include <vector>

#include "tests/fakes/temporary_directory.h"

namespace dorajit {
namespace {

// The results of one process, in memory that all processes share.
struct Seen {
  int wrong = -1;  // number of wrong elements; -1: the process did not finish
  Statistics counts{};
  // The config of each problem: those of all processes are the same.
  std::array<std::array<char, 64>, 2> configs{};
};

// One call of each problem on each of two threads; returns the number of wrong elements.
int compose_on_threads(Engine& engine) {
  std::atomic<int> wrong = 0;
  const auto compose = [&] {
    for (const std::int64_t cols : {96, 160}) {
      const std::int64_t count = 8 * cols;
      std::vector<float> lora(static_cast<std::size_t>(count), 3.0F);
      std::vector<float> base(lora.size(), 5.0F);
      std::vector<float> gain(static_cast<std::size_t>(cols), 1.5F);
      std::vector<float> out(lora.size());
      const auto matrix = [&](std::vector<float>& data) {
        return TensorRef(data.data(), {8, cols}, ElementType::kFloat32, Device::cpu());
      };
      const TensorRef columns(gain.data(), {cols}, ElementType::kFloat32, Device::cpu());
      engine.compose(nullptr, matrix(lora), matrix(base), columns, 2.0, matrix(out));
      for (const float value : out) wrong += value != 11.5F;  // 0.5 * 5 + 1.5 * (2 * 3)
    }
  };
  std::thread other(compose);
  compose();
  other.join();
  return wrong;
}

TEST(ManyColdProcesses, ThreadsOfManyProcessesTuneEachProblemOnce) {
  constexpr int kMany = 64;
  constexpr int kProblems = 2;
  const cache::TemporaryDirectory folder;
  Options options;
  options.cache_dir = folder.path();
  options.tune_policy = TunePolicy::kFirstUse;
  options.tune_seconds = 0.2;
  const auto size = kMany * sizeof(Seen);
  void* shared = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  const std::span seen(static_cast<Seen*>(shared), kMany);
  std::ranges::fill(seen, Seen{});
  for (Seen& mine : seen) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child != 0) continue;
    try {
      Engine engine(options);
      const int wrong = compose_on_threads(engine);
      mine.counts = engine.statistics();
      for (const Explanation& plan : engine.plans()) {
        const std::size_t problem = plan.problem.contains("/c96/") ? 0 : 1;
        plan.config.copy(mine.configs.at(problem).data(), 63);
      }
      mine.wrong = wrong;
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(0);
  }
  int status = 0;
  while (::wait(&status) > 0) EXPECT_EQ(status, 0);
  Statistics sum;
  for (const Seen& one : seen) {
    EXPECT_EQ(one.wrong, 0);
    EXPECT_EQ(one.counts.builtin_kernels, 0);
    EXPECT_EQ(one.configs, seen.front().configs);
    sum.tuned_problems += one.counts.tuned_problems;
    sum.compilations += one.counts.compilations;
  }
  for (const auto& config : seen.front().configs) EXPECT_NE(config.front(), '\0');
  ::munmap(shared, size);
  EXPECT_EQ(sum.tuned_problems, kProblems);
  std::int64_t artifacts = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder.file("artifacts"))) {
    artifacts += entry.is_regular_file() ? 1 : 0;
  }
  // Two problems of one variant may be tuned concurrently, so a kernel may be compiled twice.
  EXPECT_GE(sum.compilations, artifacts);
  EXPECT_LE(sum.compilations, kProblems * artifacts);
  std::printf("%d processes: %ld tunings, %ld compilations of %ld kernels\n", kMany,
              static_cast<long>(sum.tuned_problems), static_cast<long>(sum.compilations),
              static_cast<long>(artifacts));
  // A later process finds all results.
  {
    Engine engine(options);
    EXPECT_EQ(compose_on_threads(engine), 0);
    EXPECT_EQ(engine.statistics().compilations, 0);
    EXPECT_EQ(engine.statistics().tuned_problems, 0);
  }
}

}  // namespace
}  // namespace dorajit
