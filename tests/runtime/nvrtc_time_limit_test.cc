// An NVRTC that hangs costs a compilation, not the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "kernel_templates/spaces.h"
#include "kernel_templates/templates/streaming_configs.h"
#include "runtime/compile/nvrtc_compiler.h"
#include "runtime/launch/kernel_cache.h"
#include "tests/fakes/child_process.h"
#include "tests/runtime/fake_nvrtc/fake_nvrtc.h"
#include "tests/variants.h"

namespace dorajit::compile {
namespace {

using kernels::DeviceKind;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr const char* kNeverEnds = "sm_75";
constexpr const char* kEndsWhenTold = "sm_80";
constexpr const char* kEndsAtOnce = "sm_90";

CompileRequest request_for(const char* arch) {
  return {.variant = tests::float_compose(),
          .config = kernels::default_config(tests::float_compose(), {.kind = DeviceKind::kCuda}, 4),
          .target = {.kind = DeviceKind::kCuda, .arch = arch}};
}

TEST(NvrtcTimeLimitThread, OverlongCompilationFailsAndOthersSucceed) {
  NvrtcCompiler compiler(DORAJIT_FAKE_NVRTC, nullptr, milliseconds(100));
  const auto stuck = compiler.compile(request_for(kNeverEnds));
  ASSERT_FALSE(stuck);
  EXPECT_EQ(stuck.error().code, StatusCode::kCompileError);
  EXPECT_THAT(stuck.error().message, HasSubstr("within 100 ms"));
  EXPECT_THAT(stuck.error().message, HasSubstr("compose/f32,f32,f32,f32 with config b"));
  NvrtcCompiler patient(DORAJIT_FAKE_NVRTC, nullptr);
  EXPECT_TRUE(patient.compile(request_for(kEndsAtOnce)));
  EXPECT_TRUE(patient.identity());
}

TEST(NvrtcTimeLimitThread, NumberOfAbandonedThreadsIsLimited) {
  std::atomic<bool>& is_held = tests::fake_nvrtc(DORAJIT_FAKE_NVRTC).is_held;
  is_held = true;
  NvrtcCompiler compiler(DORAJIT_FAKE_NVRTC, nullptr, milliseconds(10));
  for (int i = 0; i < kMaxAbandonedThreads; ++i) {
    EXPECT_FALSE(compiler.compile(request_for(kEndsWhenTold)));
  }
  const auto refused = compiler.compile(request_for(kEndsAtOnce));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("has not come back from 4 compilations"));
  is_held = false;
  NvrtcCompiler patient(DORAJIT_FAKE_NVRTC, nullptr);
  while (!patient.compile(request_for(kEndsAtOnce))) {
    std::this_thread::sleep_for(milliseconds(1));  // until an abandoned compilation has ended
  }
}

TEST(NvrtcTimeLimitFork, ForkedChildStartsWithoutAbandonedWork) {
  const auto is_over = std::make_shared<std::atomic<bool>>(false);
  const auto last_until_over = [is_over] {
    while (!*is_over) std::this_thread::sleep_for(milliseconds(1));
  };
  // An earlier test of this process may have abandoned some threads.
  while (run_within(milliseconds(1), last_until_over) != Outcome::kRefused) {
  }
  EXPECT_EQ(cache::run_in_child([&] {
              for (int i = 0; i < kMaxAbandonedThreads; ++i) {
                CHILD_CHECK(run_within(milliseconds(1), last_until_over) == Outcome::kTooLate);
              }
              CHILD_CHECK(run_within(milliseconds(1), [] {}) == Outcome::kRefused);
              return 0;
            }),
            0);
  *is_over = true;
  while (run_within(kCompileTimeLimit, [] {}) != Outcome::kDone) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST(NvrtcTimeLimitThread, ExceptionOfTheWorkReachesTheCaller) {
  EXPECT_THROW(run_within(kCompileTimeLimit, [] { throw std::bad_alloc(); }), std::bad_alloc);
}

TEST(NvrtcTimeLimitProcess, EndlessCompilationDoesNotDelayTheExit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        NvrtcCompiler compiler(DORAJIT_FAKE_NVRTC, nullptr, milliseconds(10));
        exit(compiler.compile(request_for(kNeverEnds)) ? 1 : 3);
      },
      testing::ExitedWithCode(3), "");
}

// The config that made the limit necessary: NVRTC takes minutes to compile it.
kernels::Config endless_config() {
  auto config = kernels::default_config(tests::float_compose(), {.kind = DeviceKind::kCuda}, 4);
  config.set(kernels::kRowsOfProgram, 512);
  config.set(kernels::kUnroll, 512);
  return config;
}

TEST(NvrtcTimeLimitThread, RealNvrtcStillCompilesAfterAnAbandonedCompilation) {
  const char* hint = getenv("DORAJIT_NVRTC");
  NvrtcCompiler unlimited(hint != nullptr ? hint : "", nullptr);
  if (!unlimited.identity()) GTEST_SKIP() << "no NVRTC here";
  NvrtcCompiler limited(hint != nullptr ? hint : "", nullptr, milliseconds(500));
  CompileRequest endless = request_for(kEndsAtOnce);
  endless.config = endless_config();
  EXPECT_FALSE(limited.compile(endless));
  EXPECT_TRUE(unlimited.compile(request_for(kEndsAtOnce)));
}

TEST(NvrtcTimeLimit, ConfigWithEndlessCompilationIsRefusedBeforehand) {
  Statistics statistics;
  Settings settings;
  settings.nvrtc_path = DORAJIT_FAKE_NVRTC;
  launch::KernelCache kernels(settings, nullptr, statistics);
  const auto built =
      kernels.build({DeviceKind::kCuda, kEndsAtOnce}, tests::float_compose(), endless_config());
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().code, StatusCode::kUnsupported);
  EXPECT_THAT(built.error().message, HasSubstr("-r512-v4-u512-c0"));
  EXPECT_EQ(statistics.compilations, 0);
}

}  // namespace
}  // namespace dorajit::compile
