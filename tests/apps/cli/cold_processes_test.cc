// Several processes that start cold at once on one cache directory.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "cache/database/tuning_store.h"
#include "kernel_templates/config.h"
#include "runtime/compile/subprocess.h"

namespace dorajit::tests {
namespace {

constexpr std::chrono::milliseconds kPatience{120'000};
constexpr int kProcesses = 4;

class ColdProcesses : public testing::Test {
 protected:
  ColdProcesses() {
    char pattern[] = "/tmp/dorajit-test-XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~ColdProcesses() override { std::filesystem::remove_all(folder_); }

  // Tunes one problem in a process of its own.
  Result<compile::ProcessResult> tune() {
    return compile::run_process({DORAJIT_CLI, "--cache-dir", folder_.string(), "--device", "cpu",
                                 "tune", "--shape", "16x256", "--type", "f32", "--json"},
                                kPatience);
  }

  std::filesystem::path folder_;
};

TEST_F(ColdProcesses, ProblemIsTunedOnceAndAllAgree) {
  std::vector<Result<compile::ProcessResult>> results(kProcesses, compile::ProcessResult{});
  std::vector<std::thread> waiting;
  for (auto& result : results) waiting.emplace_back([&result, this] { result = tune(); });
  for (auto& thread : waiting) thread.join();
  std::set<std::string> configs;
  for (const auto& result : results) {
    ASSERT_TRUE(result) << result.error().message;
    ASSERT_EQ(result->exit_code, 0) << result->output;
    configs.insert(nlohmann::json::parse(result->output)["problems"][0]["config"]);
  }
  EXPECT_EQ(configs.size(), 1U);
  const auto store = cache::TuningStore::open(folder_);
  ASSERT_EQ(store->winners().size(), 1U);
  const auto winner = store->winners().front();
  std::set<std::string> tried;
  for (const auto& trial : store->trials(winner.device, winner.problem)) {
    EXPECT_TRUE(tried.insert(to_text(trial.config)).second) << "the problem was tuned twice";
  }
  EXPECT_FALSE(tried.empty());
}

}  // namespace
}  // namespace dorajit::tests
