// DORAJIT_RECORD
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "runtime/compile/subprocess.h"
#include "runtime/launch/problem.h"
#include "tests/bindings/c/c_abi_fixture.h"
#include "tests/fakes/child_process.h"

namespace dorajit::bindings {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

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

  // A call that need not succeed to have been met: its status.
  static Outcome call(dorajit_engine* engine, std::int64_t rows, std::int64_t cols) {
    return SampleCompose(rows, cols).run(engine);
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

}  // namespace
}  // namespace dorajit::bindings
