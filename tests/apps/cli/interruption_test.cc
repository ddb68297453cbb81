// Ctrl-C leaves no file half-written, and bars are for terminals only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cache/database/trial_files.h"
#include "tests/apps/cli/cli_sandbox.h"
#include "tests/cache/records/sample_records.h"

namespace dorajit::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kInterrupted = 128 + SIGINT;

class Interruption : public CliTest {
 protected:
  Interruption() {
    fs::create_directory(file("bundles"));
    write_trials(file("a.jsonl"), 0, 40);
    sandbox_.succeed({"import", file("a.jsonl")});
  }

  // Of many problems, all of which have a winner.
  static void write_trials(const std::string& path, int first_problem, int problems) {
    std::vector<cache::Trial> trials;
    for (int problem = first_problem; problem < first_problem + problems; ++problem) {
      for (cache::Trial& trial : cache::sample_trials(problem, 8)) {
        trial.created_unix_s = 1'700'000'000;
        trial.host = "host";
        trial.device = "cuda/NVIDIA X1/sm_90/8 GiB";
        trial.default_config = cache::sample_config(0);
        trials.push_back(std::move(trial));
      }
    }
    ASSERT_TRUE(cache::write_trial_file(path, trials));
  }

  // Runs it once to the end, then with an interruption at every so many steps that it takes in the
  // folder, each time after `prepare`; `check` is told the step.
  void interrupt_at_steps(const Words& words, const std::string& folder, int stride,
                          const std::function<void()>& prepare,
                          const std::function<void()>& check) {
    prepare();
    const int steps = sandbox_.steps_of(words, folder);
    ASSERT_GT(steps, 3);
    int interrupted = 0;
    for (int step = 1; step <= steps; step += stride) {
      SCOPED_TRACE(words.front() + " at step " + std::to_string(step));
      prepare();
      sandbox_.bring_disk_trouble("interrupt", folder, step);
      const CliResult result = sandbox_.run(words);
      sandbox_.bring_disk_trouble("");
      // At the very end it may be too late.
      if (result.exit_code != 0) EXPECT_EQ(result.exit_code, kInterrupted) << result.err;
      if (result.exit_code != 0) ++interrupted;
      EXPECT_EQ(result.err, "");
      check();
    }
    EXPECT_GE(interrupted * stride, steps / 2);
  }
};

TEST_F(Interruption, OutputFilesAreCompleteOrUnchanged) {
  write_trials(file("b.jsonl"), 100, 3);
  const std::string out = file("bundles/nvidia.jsonl");
  const std::vector<Words> runs = {
      {"export", "--out", out},
      {"export", "--out", out, "--from", file("a.jsonl"), "--from", file("b.jsonl")},
      {"report", "--html", out, "--from", file("a.jsonl")},
  };
  for (const Words& words : runs) {
    sandbox_.succeed(words);
    const std::string whole = read_file(out);
    interrupt_at_steps(
        words, file("bundles"), 1, [&] { std::ofstream(out) << "before\n"; },
        [&] {
          const std::string now = read_file(out);
          // A page tells when it was made.
          const bool is_whole = now == whole || now.ends_with("</html>\n");
          EXPECT_TRUE(now == "before\n" || is_whole) << now.size();
        });
  }
}

TEST_F(Interruption, ShippedDatabasesAreCompleteOrAbsent) {
  const auto prepare = [&] {
    fs::remove_all(file("bundles"));
    fs::create_directory(file("bundles"));
  };
  interrupt_at_steps({"export", "--out", file("bundles/x.db"), "--from", file("a.jsonl")},
                     file("bundles"), 5, prepare, [&] {
                       const std::string made = file("bundles/x.db");
                       if (fs::exists(made)) {
                         sandbox_.succeed({"doctor", made});
                       }
                     });
}

TEST_F(Interruption, ImportsAreCompleteOrUndone) {
  write_trials(file("b.jsonl"), 100, 40);
  fs::rename(sandbox_.cache_dir(), file("prepared"));
  const auto prepare = [&] { sandbox_.copy_cache_of(file("prepared")); };
  prepare();
  const std::string before = sandbox_.run("export").out;
  const Words words = {"import", file("b.jsonl")};
  sandbox_.succeed(words);
  const std::string after = sandbox_.run("export").out;
  ASSERT_NE(before, after);
  interrupt_at_steps(words, sandbox_.cache_dir(), 9, prepare, [&] {
    sandbox_.succeed({"doctor", sandbox_.database()});
    const std::string now = sandbox_.run("export").out;
    EXPECT_TRUE(now == before || now == after);
  });
}

// At any time, that is, also while nothing is written.
TEST_F(Interruption, BigFilesMayBeInterruptedAtAnyTime) {
  write_trials(file("big.jsonl"), 1000, 100);
  sandbox_.succeed({"import", file("big.jsonl")});
  const std::string before = sandbox_.run("export").out;
  write_trials(file("more.jsonl"), 2000, 100);
  sandbox_.succeed({"--cache-dir", file("whole"), "import", file("big.jsonl"), file("more.jsonl"),
                    file("a.jsonl")});
  const std::string whole = sandbox_.run({"--cache-dir", file("whole"), "export"}).out;
  const std::string out = file("bundles/all.jsonl");
  const std::vector<Words> runs = {
      {"export", "--out", out},
      {"export", "--out", out, "--from", file("big.jsonl"), "--from", file("more.jsonl")},
      {"import", file("more.jsonl")}};
  for (const Words& words : runs) {
    SCOPED_TRACE(words.front());
    const bool is_import = words.front() == "import";
    const auto start = Clock::now();
    // What an import takes is not known before it is done, so an export of as much tells.
    const Words as_long = is_import ? runs[1] : words;
    sandbox_.succeed(as_long);
    const auto takes = Clock::now() - start;
    fs::remove(out);
    for (const int part : {3, 6, 8}) {
      const pid_t process = sandbox_.start(words);
      std::this_thread::sleep_for(takes * part / 10);
      ASSERT_EQ(kill(process, SIGINT), 0);
      const int code = wait_for(process);
      EXPECT_TRUE(code == kInterrupted || code == 0) << code;
      if (fs::exists(out)) sandbox_.succeed({"doctor", out});
      // One that is interrupted when all is kept has only not said so.
      const std::string now = sandbox_.run("export").out;
      if (now != whole) EXPECT_TRUE(now == before && (code != 0 || !is_import)) << now.size();
    }
    sandbox_.succeed({"doctor", sandbox_.database()});
  }
}

TEST_F(Interruption, WhatAnEarlierOneLeftIsRemoved) {
  const std::string out = file("bundles/x.jsonl");
  for (const char* name : {"x.jsonl.tmp.abcdef", "x.jsonl.tmp.ghijkl", "mine.tmp.abcdef"}) {
    std::ofstream(file("bundles/") + name) << "a part";
  }
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(2);
  fs::last_write_time(file("bundles/x.jsonl.tmp.abcdef"), long_ago);
  fs::last_write_time(file("bundles/mine.tmp.abcdef"), long_ago);
  sandbox_.succeed({"export", "--out", out});
  EXPECT_FALSE(fs::exists(file("bundles/x.jsonl.tmp.abcdef")));
  EXPECT_TRUE(fs::exists(file("bundles/x.jsonl.tmp.ghijkl"))) << "a process may be writing it";
  EXPECT_TRUE(fs::exists(file("bundles/mine.tmp.abcdef"))) << "of another file";
}

TEST_F(Interruption, TuningEndsAtOnce) {
  const pid_t process = sandbox_.start("tune --shape 8x512 --type f32 --device cpu");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(kill(process, SIGTERM), 0);
  EXPECT_EQ(wait_for(process), 128 + SIGTERM);
}

TEST_F(Interruption, BarsAreDrawnOnTerminalsOnly) {
  sandbox_.set("TERM", "xterm");
  const std::vector<std::pair<Words, std::string>> runs = {
      {{"export", "--out", file("x.jsonl")}, "writing"},
      {{"export", "--out", file("y.jsonl"), "--from", file("a.jsonl")},
       "reading " + file("a.jsonl")},
      {{"import", file("a.jsonl")}, "adding to the database"},
      {{"doctor", file("a.jsonl")}, "reading " + file("a.jsonl")},
      {{"freeze", "--shape", "4x64", "--type", "f32", "--device", "cpu"}, "freezing compose/"},
  };
  for (const auto& [words, activity] : runs) {
    const CliResult shown = sandbox_.run_on_terminal(words);
    EXPECT_THAT(shown, fails(0, "[########"));
    EXPECT_THAT(shown.err, HasSubstr(activity)) << words.front();
    EXPECT_THAT(shown.err, HasSubstr("\r\033[K")) << words.front();
    const CliResult piped = sandbox_.run(words);
    EXPECT_EQ(piped.err.find('['), std::string::npos) << piped.err;
    Words quiet = words;
    quiet.emplace_back("--json");
    if (words.front() != "freeze") EXPECT_EQ(sandbox_.run_on_terminal(quiet).err, "");
  }
}

}  // namespace
}  // namespace dorajit::test
