// cache path, size, clear and prune
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(CliCache, PathIsOneLine) {
  const CliSandbox sandbox;
  EXPECT_EQ(sandbox.run("cache path").out, sandbox.cache_dir() + "\n");
  const auto document = sandbox.json("cache path");
  EXPECT_EQ(document["database"], sandbox.database());
  EXPECT_EQ(sandbox.run("cache path --cache-dir /x/y").out, "/x/y\n");
}

TEST(CliCache, EmptyFolderHasSizeZero) {
  const CliSandbox sandbox;
  EXPECT_EQ(sandbox.json("cache size")["total"]["bytes"], 0);
  const CliResult cleared = sandbox.succeed("cache clear");
  EXPECT_EQ(cleared.out, "0 kernels deleted, 0 B; 0 left, 0 B\n");
}

// A folder with one tuned problem.
class CliCacheFolder : public testing::Test {
 protected:
  void SetUp() override { sandbox_.succeed(tune_); }

  std::vector<fs::path> kernels() {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(sandbox_.cache_dir())) {
      if (entry.path().extension() == ".art") found.push_back(entry.path());
    }
    return found;
  }

  CliSandbox sandbox_;
  const Words tune_ = "tune --shape 4x64 --type f32 --device cpu --json";
};

TEST_F(CliCacheFolder, SizeCountsEveryFileOnce) {
  std::ofstream(sandbox_.cache_dir() + "/something_else") << "12345";
  std::uintmax_t bytes = 0;
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(sandbox_.cache_dir())) {
    if (!entry.is_regular_file()) continue;
    bytes += entry.file_size();
    ++files;
  }
  const auto size = sandbox_.json("cache size");
  EXPECT_THAT(size, has({{"/total/bytes", bytes},
                         {"/total/files", files},
                         {"/kernels/files", kernels().size()}}));
  EXPECT_GT(size["database"]["bytes"], 4096);
  EXPECT_GE(size["other"]["bytes"], 5);
  EXPECT_EQ(size["max_kernel_bytes"], 1 << 30);
  EXPECT_THAT(sandbox_.run("cache size").out,
              HasSubstr("kernels may take 1.00 GiB (DORAJIT_CACHE_MAX_BYTES)\n"));
}

TEST_F(CliCacheFolder, PruneDeletesTheLeastRecentlyUsedKernels) {
  const auto all = kernels();
  ASSERT_GT(all.size(), 2U);
  const fs::path& newest = all[1];
  for (const fs::path& kernel : all) {
    const bool is_newest = kernel == newest;
    fs::last_write_time(kernel,
                        fs::file_time_type::clock::now() - std::chrono::hours(is_newest ? 1 : 2));
  }
  const auto bytes = fs::file_size(newest);
  const auto pruned = sandbox_.json({"cache", "prune", "--max-bytes", std::to_string(bytes)});
  EXPECT_THAT(pruned, has({{"/kernels_deleted", all.size() - 1}, {"/bytes_left", bytes}}));
  EXPECT_EQ(kernels(), std::vector{newest});
  EXPECT_EQ(sandbox_.json("cache prune --max-bytes 1MiB")["kernels_deleted"], 0);
}

TEST_F(CliCacheFolder, ClearDeletesKernelsAndKeepsWinners) {
  const std::size_t before = kernels().size();
  const auto cleared = sandbox_.json("cache clear");
  EXPECT_EQ(cleared["kernels_deleted"], before);
  EXPECT_FALSE(cleared.contains("winners_deleted"));
  EXPECT_TRUE(kernels().empty());
  const auto again = sandbox_.json(tune_);
  EXPECT_EQ(again["problems"][0]["source"], "user database");
  EXPECT_EQ(again["statistics"]["compilations"], 1) << "the winner alone";
}

TEST_F(CliCacheFolder, ClearWithWinnersDeletesTheTuningData) {
  const auto cleared = sandbox_.json("cache clear --winners");
  EXPECT_EQ(cleared["winners_deleted"], 1);
  EXPECT_GT(cleared["trials_deleted"], 1);
  const auto shown = sandbox_.json("show");
  EXPECT_TRUE(shown["winners"].empty());
  EXPECT_EQ(shown["database"]["trials"], 0);
  EXPECT_EQ(sandbox_.json(tune_)["problems"][0]["source"], "tuned");
}

// A process that has the kernel loaded goes on, and the next one compiles it again.
TEST_F(CliCacheFolder, ClearBesideARunningProcessBreaksNothing) {
  const Words tune = "tune --shape 4x96,4x128,4x160 --type f32 --device cpu --seconds 0.5";
  const pid_t running = sandbox_.start(tune);
  for (int i = 0; i < 20; ++i) {
    sandbox_.succeed("cache clear --winners");
  }
  EXPECT_EQ(wait_for(running), 0);
  const CliResult again = sandbox_.succeed(tune);
  EXPECT_EQ(again.err, "");
}

TEST_F(CliCacheFolder, ClearOfAReadOnlyFolderFails) {
  if (geteuid() == 0) GTEST_SKIP() << "root may delete everything";
  for (const fs::path& kernel : kernels()) {
    fs::permissions(kernel.parent_path(), fs::perms::owner_read | fs::perms::owner_exec);
  }
  const CliResult result = sandbox_.run("cache clear");
  for (const fs::path& kernel : kernels()) {
    fs::permissions(kernel.parent_path(), fs::perms::owner_all);
  }
  EXPECT_EQ(result.exit_code, kFailed);
  EXPECT_THAT(result.err, HasSubstr("cannot be deleted"));
}

}  // namespace
}  // namespace dorajit::test
