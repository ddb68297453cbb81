// DORAJIT_LOCKED
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cache/records/pins.h"
#include "kernel_templates/config_text.h"
#include "runtime/compile/subprocess.h"
#include "tests/bindings/c/c_abi_fixture.h"
#include "tests/fakes/child_process.h"

namespace dorajit::bindings {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

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

  static Outcome call(dorajit_engine* engine, std::int64_t rows, std::int64_t cols) {
    const auto count = static_cast<std::size_t>(rows * cols);
    HostArray lora(ElementType::kFloat32, count);
    HostArray base(ElementType::kFloat32, count);
    HostArray gain(ElementType::kFloat32, static_cast<std::size_t>(cols));
    HostArray out(ElementType::kFloat32, count);
    lora.fill(1, 0.5, 19);
    base.fill(2, 0.25, 11);
    gain.fill(0.5, 0.125, 7);
    return compose(engine, {lora, {rows, cols}}, {base, {rows, cols}}, {gain, {cols}}, 2,
                   {out, {rows, cols}});
  }

  static Outcome create() {
    dorajit_engine* engine = nullptr;
    dorajit_error* error = nullptr;
    const dorajit_status status = dorajit_engine_create(nullptr, &engine, &error);
    EXPECT_EQ(engine != nullptr, status == DORAJIT_OK);
    dorajit_engine_destroy(engine);
    return take(status, error);
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
    const Outcome outcome = create();
    EXPECT_EQ(outcome.status, DORAJIT_IO_ERROR);
    EXPECT_THAT(outcome.message, HasSubstr("DORAJIT_LOCKED"));
    EXPECT_THAT(outcome.message, HasSubstr(file()));
    EXPECT_THAT(outcome.message, HasSubstr(why));
    EXPECT_THAT(outcome.message, HasSubstr("dorajit freeze"));
  };
  expect_refused("No such file or directory");
  freeze();
  EXPECT_EQ(create().message, "");
  fs::resize_file(file(), fs::file_size(file()) - 1);
  expect_refused("incomplete");
  setenv("DORAJIT_LOCKED_MISS", "banana", 1);
  EXPECT_EQ(create().status, DORAJIT_INVALID_ARGUMENT);
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
