// DORAJIT_RECORD and DORAJIT_LOCKED
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "cache/records/pins.h"
#include "kernel_templates/config.h"
#include "runtime/compile/subprocess.h"
#include "runtime/launch/problem.h"
#include "tests/bindings/c/c_abi_fixture.h"
#include "tests/fakes/child_process.h"

namespace dorajit::bindings {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

Outcome call(dorajit_engine* engine, std::int64_t rows, std::int64_t cols) {
  return SampleCompose(rows, cols).run(engine);
}

class Record : public CAbiTest {
 protected:
  Record() { record(file()); }
  ~Record() override { unsetenv("DORAJIT_RECORD"); }

  static void record(const std::string& path) { setenv("DORAJIT_RECORD", path.c_str(), 1); }
  [[nodiscard]] std::string file() const { return folder() + "/problems.txt"; }

  [[nodiscard]] std::vector<std::string> lines() const {
    std::ifstream stream(file());
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
};

TEST_F(Record, EachProblemIsRecordedOnce) {
  const EngineHandle engine = make_engine();
  const EngineHandle other = make_engine();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(call(engine.get(), 4, 16).status, DORAJIT_OK);
    ASSERT_EQ(call(engine.get(), 3, 16).status, DORAJIT_OK) << "of the same bucket of rows";
    ASSERT_EQ(call(other.get(), 4, 16).status, DORAJIT_OK) << "another engine of the process";
    ASSERT_EQ(call(engine.get(), 4, 24).status, DORAJIT_OK);
  }
  EXPECT_EQ(statistics_of(engine.get()).tuned_problems, 0);
  EXPECT_THAT(lines(), ElementsAre("compose/f32,f32,f32,f32/v1/c16/r2",
                                   "compose/f32,f32,f32,f32/v1/c24/r2"));
}

TEST_F(Record, VariableIsReadWhenTheEngineIsMade) {
  const EngineHandle engine = make_engine();
  record(folder() + "/later.txt");
  ASSERT_EQ(call(engine.get(), 4, 16).status, DORAJIT_OK);
  EXPECT_EQ(lines().size(), 1U);
  EXPECT_FALSE(fs::exists(folder() + "/later.txt"));
}

TEST_F(Record, ConcurrentProcessesWriteWholeLines) {
  constexpr int kProcesses = 8;
  constexpr std::int64_t kProblems = 40;
  cache::run_at_once(kProcesses, [&](int process) {
    std::vector<std::int64_t> cols;
    for (std::int64_t i = 1; i <= kProblems; ++i) cols.push_back(i);
    std::ranges::shuffle(cols, std::mt19937(static_cast<unsigned>(process)));
    const EngineHandle engine = make_engine();
    for (const std::int64_t one : cols) {
      CHILD_CHECK(call(engine.get(), 2, one).status == DORAJIT_OK);
    }
    return 0;
  });
  std::map<std::string, int> times;
  for (const std::string& line : lines()) {
    EXPECT_TRUE(launch::parse_problem(line)) << line;
    ++times[line];
  }
  EXPECT_EQ(times.size(), static_cast<std::size_t>(kProblems));
  for (const auto& [line, count] : times) EXPECT_EQ(count, kProcesses) << line;

  // Its own variable is set, which must not make the program write to what it reads.
  const std::size_t recorded = lines().size();
  set_variable("DORAJIT_CXX", std::nullopt);
  const auto tuned = compile::run_process({DORAJIT_CLI, "--device", "cpu", "tune", "--from", file(),
                                           "--shard", "1/20", "--seconds", "0.05", "--json"},
                                          std::chrono::milliseconds(120'000));
  ASSERT_TRUE(tuned) << tuned.error().message;
  ASSERT_EQ(tuned->exit_code, 0) << tuned->output;
  const auto document = nlohmann::json::parse(tuned->output);
  EXPECT_EQ(document["shard"]["problems_in_all"], kProblems);
  EXPECT_EQ(document["problems"].size(), 2U);
  EXPECT_EQ(lines().size(), recorded);
}

TEST_F(Record, UnwritableFileIsAWarning) {
  // What takes no line: a folder, a pipe without a reader, a file of a folder that is not there.
  const std::string pipe = folder() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path :
       {folder(), pipe, folder() + "/no/such/file", std::string("/dev/full")}) {
    record(path);
    set_variable("DORAJIT_LOG", "warning");
    const EngineHandle engine = make_engine();
    const LogCapture log;
    EXPECT_EQ(call(engine.get(), 4, 16).status, DORAJIT_OK) << path;
    EXPECT_EQ(call(engine.get(), 4, 24).status, DORAJIT_OK) << path;
    const auto said = std::ranges::count_if(log.lines(), [&](const LogCapture::Line& line) {
      return line.message.contains("not recorded in " + path);
    });
    EXPECT_EQ(said, 1) << log.text();
    EXPECT_THAT(log.text(), HasSubstr("DORAJIT_RECORD"));
  }
}

class Locked : public CAbiTest {
 protected:
  Locked() {
    set_variable("DORAJIT_CXX", std::nullopt);
    set_variable("DORAJIT_LOG", "warning");
  }
  ~Locked() override {
    unsetenv("DORAJIT_LOCKED");
    unsetenv("DORAJIT_LOCKED_MISS");
  }

  [[nodiscard]] std::string file() const { return folder() + "/train.lock"; }

  // What the program freezes of the problem that calls of 4 rows and 64 columns are.
  void freeze() {
    const auto run = compile::run_process({DORAJIT_CLI, "freeze", "--device", "cpu", "--shape",
                                           "4x64", "--type", "f32", "--out", file()},
                                          std::chrono::milliseconds(60'000));
    ASSERT_TRUE(run) << run.error().message;
    ASSERT_EQ(run->exit_code, 0) << run->output;
  }

  void lock(const char* on_miss = "") {
    setenv("DORAJIT_LOCKED", file().c_str(), 1);
    setenv("DORAJIT_LOCKED_MISS", on_miss, 1);
    // What may never happen in such a process.
    set_variable("DORAJIT_TUNE", "first_use");
  }
};

TEST_F(Locked, FrozenConfigsRunAndNothingIsTuned) {
  freeze();
  lock("fail");
  const LogCapture log;
  const EngineHandle engine = make_engine();
  EXPECT_EQ(call(engine.get(), 4, 64).message, "");
  EXPECT_EQ(call(engine.get(), 3, 64).message, "") << "of the same bucket of rows";
  EXPECT_EQ(statistics_of(engine.get()).compilations, 0) << "freezing has compiled it";
  EXPECT_EQ(statistics_of(engine.get()).trials, 0);
  EXPECT_EQ(log.text(), "");
}

TEST_F(Locked, MissIsReportedOrFails) {
  freeze();
  lock();
  {
    const LogCapture log;
    const EngineHandle engine = make_engine();
    EXPECT_EQ(call(engine.get(), 4, 96).message, "");
    EXPECT_EQ(call(engine.get(), 4, 96).message, "");
    EXPECT_EQ(statistics_of(engine.get()).trials, 0);
    ASSERT_EQ(log.lines().size(), 1U) << log.text();
    EXPECT_THAT(log.lines()[0].message, HasSubstr("compose/f32,f32,f32,f32/v1/c96/r2 cannot run "
                                                  "as the lock file " +
                                                  file() + " requires"));
  }
  lock("fail");
  const EngineHandle engine = make_engine();
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = call(engine.get(), 4, 96);
    EXPECT_EQ(outcome.status, DORAJIT_UNSUPPORTED);
    EXPECT_THAT(outcome.message, HasSubstr("c96/r2 cannot run as the lock file"));
    EXPECT_EQ(call(engine.get(), 4, 64).message, "") << "the engine stays usable";
  }
}

// Ranks of a job, one of them with another compiler.
TEST_F(Locked, ProcessesRunAlikeOrReportTheDifference) {
  freeze();
  lock("fail");
  cache::run_at_once(4, [&](int rank) {
    if (rank == 3) set_variable("DORAJIT_CXX", "clang++-19");
    const EngineHandle engine = make_engine();
    const Outcome outcome = call(engine.get(), 4, 64);
    if (rank < 3) {
      CHILD_CHECK(outcome.status == DORAJIT_OK);
      return 0;
    }
    CHILD_CHECK(outcome.status == DORAJIT_UNSUPPORTED);
    CHILD_CHECK(outcome.message.contains("its compiler was"));
    return 0;
  });
}

TEST_F(Locked, UnreadableFileIsAnErrorOfTheEngine) {
  lock();
  const auto expect_refused = [&](const std::string& why) {
    const Outcome outcome = create_engine();
    EXPECT_EQ(outcome.status, DORAJIT_IO_ERROR);
    EXPECT_THAT(outcome.message, HasSubstr("DORAJIT_LOCKED"));
    EXPECT_THAT(outcome.message, HasSubstr(file()));
    EXPECT_THAT(outcome.message, HasSubstr(why));
    EXPECT_THAT(outcome.message, HasSubstr("dorajit freeze"));
  };
  expect_refused("No such file or directory");
  freeze();
  EXPECT_EQ(create_engine().message, "");
  fs::resize_file(file(), fs::file_size(file()) - 1);
  expect_refused("incomplete");
  setenv("DORAJIT_LOCKED_MISS", "banana", 1);
  EXPECT_EQ(create_engine().status, DORAJIT_INVALID_ARGUMENT);
}

TEST_F(Locked, BuiltInKernelsAreFrozen) {
  set_variable("DORAJIT_CXX", "none");
  freeze();
  const auto entries = cache::read_pin_file(file());
  ASSERT_TRUE(entries) << entries.error().message;
  ASSERT_EQ(entries->size(), 1U);
  EXPECT_EQ(entries->front().artifact, "");
  lock("fail");
  set_variable("DORAJIT_LOG", "off");
  const EngineHandle engine = make_engine();
  EXPECT_EQ(call(engine.get(), 4, 64).message, "");
  set_variable("DORAJIT_CXX", std::nullopt);
  EXPECT_EQ(call(make_engine().get(), 4, 64).status, DORAJIT_UNSUPPORTED);
}

}  // namespace
}  // namespace dorajit::bindings
