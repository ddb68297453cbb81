// Real workers of a real daemon, and a config whose kernel does them harm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <format>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cache/database/tuning_store.h"
#include "kernel_templates/config.h"
#include "tests/apps/daemon/running_daemon.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::tests {
namespace {

using namespace autotune::protocol;  // NOLINT(google-build-using-namespace): what this is about

using testing::Each;

bool is_bad(const std::string& config) { return config.ends_with("-r1-v1-u1-c1"); }

// A compiler that makes of the bad configs' kernel one that does `body`.
void write_compiler(const std::string& file, const std::string& body) {
  cache::write_file(file, std::format(R"(#!/bin/sh
for source in "$@"; do :; done
if [ -f "$source" ] && grep -q 'Config{{[0-9]*, 1, 1, 1, 1, static_cast<[^>]*>(1)}}' "$source"; then
  cat >"$source" <<'CODE'
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern "C" __attribute__((visibility("default")))
void dorajit_kernel(const void*, long long, long long) {{ {} }}
CODE
fi
exec clang++-19 "$@"
)",
                                      body));
  ::chmod(file.c_str(), 0700);
}

// What came of the configs that have the bad kernel: how many threads run it is no part of it.
std::vector<cache::Verdict> verdicts_of_bad_configs(const RunningDaemon& daemon) {
  const auto store = cache::TuningStore::open(daemon.cache_dir());
  std::vector<cache::Verdict> found;
  for (const auto& trial : store->trials(cpu_fingerprint(), to_text(cpu_problem(96)))) {
    if (is_bad(kernels::to_text(trial.config))) found.push_back(trial.verdict);
  }
  return found;
}

// The queue goes on, the config is left out, and the next problem costs no worker. `watch` is
// called again and again while it is tuned.
void expect_quarantined(const cache::TemporaryDirectory& folder, const std::string& body,
                        const std::vector<std::string>& options = {},
                        const std::function<void(PlainClient&)>& watch = {}) {
  write_compiler(folder.file("c++"), body);
  RealDaemon daemon(options, false);
  daemon.set("DORAJIT_CXX", folder.file("c++"));
  daemon.start();
  PlainClient client(daemon);
  client.send(cpu_request(96));
  std::atomic<bool> is_tuned = false;
  std::thread watcher([&] {
    PlainClient other(daemon);
    while (watch && !is_tuned) {
      watch(other);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  EXPECT_FALSE(is_bad(client.expect<Tuned>().config));
  is_tuned = true;
  watcher.join();
  const auto verdicts = verdicts_of_bad_configs(daemon);
  ASSERT_FALSE(verdicts.empty());
  EXPECT_THAT(verdicts, Each(cache::Verdict::kDidNotFinish));
  EXPECT_EQ(client.status()["workers_lost"], verdicts.size()) << daemon.log();
  client.send(cpu_request(160));
  EXPECT_FALSE(is_bad(client.expect<Tuned>().config));
  EXPECT_EQ(client.status()["workers_lost"], verdicts.size()) << daemon.log();
}

TEST(BadCandidatesProcess, CrashingCandidateIsQuarantined) {
  expect_quarantined(cache::TemporaryDirectory(), "*static_cast<volatile int*>(nullptr) = 0;");
}

// The daemon kills a worker whose time is over, as tests of its scripted workers show. Here it is
// killed when it hangs, so that the outcome does not depend on how long that takes.
TEST(BadCandidatesProcess, HangingCandidateIsQuarantined) {
  const cache::TemporaryDirectory folder;
  const std::string mark = folder.file("hangs");
  const auto kill_the_hanging_worker = [&](PlainClient& client) {
    if (std::filesystem::remove(mark)) {
      ::kill(client.status()["workers"][0]["pid"].get<int>(), SIGKILL);
    }
  };
  expect_quarantined(
      folder, std::format("close(open(\"{}\", O_CREAT | O_WRONLY, 0600)); for (;;) pause();", mark),
      {}, kill_the_hanging_worker);
}

TEST(BadCandidatesProcess, MemoryHungryCandidateIsQuarantined) {
  expect_quarantined(cache::TemporaryDirectory(),
                     "static char* volatile kept; for (;; usleep(1000)) "
                     "memset(kept = static_cast<char*>(malloc(1 << 20)), 1, 1 << 20);",
                     {"--worker-memory", "1000"});
}

}  // namespace
}  // namespace dorajit::tests
