// Tuning of own kernels: who wins, who is quarantined, what is remembered.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <format>

#include "runtime/compile/subprocess.h"
#include "tests/own_kernels/fake_gpu.h"

namespace dorajit::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class OwnKernelTuningTest : public OwnKernelTest {
 protected:
  OwnKernelTuningTest() {
    set_variable("DORAJIT_TUNE", "first_use");
    set_variable("DORAJIT_TUNE_SECONDS", "10");
  }

  // With 256 configs.
  static Json large_swiglu() {
    Json json = with(swiglu(), {{"/parameters/BLOCK", Json::array()}});
    for (int block = 16; block <= 1024; block += 16) json["parameters"]["BLOCK"].push_back(block);
    return json;
  }

  // The entry of what a call of that size launches once it is tuned.
  std::string winner_of(const dorajit_operation* kernel, std::int64_t n) {
    return winner_of(engine(), kernel, n);
  }
  std::string winner_of(dorajit_engine* engine, const dorajit_operation* kernel, std::int64_t n) {
    SwigluCall call(n);
    const auto outcome = call.run(engine, kernel);
    EXPECT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
    EXPECT_TRUE(call.is_right());
    return launches().empty() ? "" : launches().back().entry;
  }

  // What a call logs whose kernel, of that name, cannot be tuned.
  std::string log_of_untuned_call(const char* name) {
    const Json json = with(swiglu(), {{"/name", name}});
    set_variable("DORAJIT_LOG", "warning");
    const auto engine = make_engine();
    const bindings::LogCapture log;
    SwigluCall call(4096);
    EXPECT_EQ(call.run(engine.get(), create(json)).status, DORAJIT_OK);
    EXPECT_EQ(bindings::statistics_of(engine.get()).tuned_problems, 0);
    return log.text();
  }
};

TEST_F(OwnKernelTuningTest, FastestConfigRunsFromTheFirstCallOn) {
  behaviours()["swiglu<128, 4>"].time_ns = 2e5;
  const auto* const kernel = create(swiglu());
  EXPECT_EQ(winner_of(kernel, 4096), "swiglu<128, 4>");
  EXPECT_EQ(statistics().tuned_problems, 1);
  EXPECT_EQ(winner_of(kernel, 4000), "swiglu<128, 4>");
  EXPECT_EQ(statistics().tuned_problems, 1);
}

TEST_F(OwnKernelTuningTest, BestConfigThatFitsRunsWhereTheWinnerDoesNot) {
  const Json json =
      with(swiglu(), {{"/constraint", "n % VEC == 0 and (BLOCK < 512 or n >= 4000)"}});
  behaviours()["swiglu<512, 4>"].time_ns = 1e5;
  behaviours()["swiglu<128, 4>"].time_ns = 2e5;
  const auto explained = [](dorajit_engine* engine, const dorajit_operation* kernel,
                            std::int64_t n) {
    SwigluCall call(n);
    const auto given = static_cast<double>(n);
    dorajit_explanation found{};
    found.struct_size = sizeof found;
    EXPECT_EQ(
        dorajit_explain(engine, kernel, call.describe()->pointers, 3, &given, 1, &found, nullptr),
        DORAJIT_OK);
    return std::format("{}, {}", found.config, found.source);
  };
  const auto* const kernel = create(json);
  for (const std::string source : {"tuned", "user database"}) {
    const auto engine = make_engine();
    EXPECT_EQ(winner_of(engine.get(), kernel, 4096), "swiglu<512, 4>");
    EXPECT_EQ(winner_of(engine.get(), kernel, 3600), "swiglu<128, 4>");
    EXPECT_EQ(winner_of(engine.get(), kernel, 4000), "swiglu<512, 4>");
    EXPECT_EQ(explained(engine.get(), kernel, 4096), "BLOCK=512-VEC=4, " + source);
    EXPECT_EQ(explained(engine.get(), kernel, 3600), "BLOCK=128-VEC=4, " + source);
  }
}

TEST_F(OwnKernelTuningTest, OnlyConfigRunsUntuned) {
  Json json = swiglu();
  json["parameters"] = {{"BLOCK", {128}}, {"VEC", {4}}};
  json["default"] = {{"BLOCK", 128}, {"VEC", 4}};
  EXPECT_EQ(winner_of(create(json), 4096), "swiglu<128, 4>");
  EXPECT_EQ(statistics().tuned_problems, 0);
  EXPECT_EQ(launches().size(), 1);
}

TEST_F(OwnKernelTuningTest, AnotherProcessFindsTheWinnerInTheDatabase) {
  behaviours()["swiglu<128, 4>"].time_ns = 2e5;
  winner_of(make_engine().get(), create(swiglu()), 4096);
  behaviours()["swiglu<128, 4>"].time_ns = 5e6;
  const auto engine = make_engine();
  EXPECT_EQ(winner_of(engine.get(), create(swiglu()), 4096), "swiglu<128, 4>");
  EXPECT_EQ(bindings::statistics_of(engine.get()).tuned_problems, 0);
  EXPECT_GT(bindings::statistics_of(engine.get()).artifact_hits, 0);
}

TEST_F(OwnKernelTuningTest, WinnerOfAnotherSourceIsNotTaken) {
  behaviours()["swiglu<128, 4>"].time_ns = 2e5;
  winner_of(make_engine().get(), create(swiglu()), 4096);
  behaviours().clear();
  behaviours()["swiglu<64, 8>"].time_ns = 2e5;
  const Json json =
      with(swiglu(), {{"/source", std::string(kSwigluSource) + "// of another version\n"}});
  EXPECT_EQ(winner_of(make_engine().get(), create(json), 4096), "swiglu<64, 8>");
}

// A large space, of which the time allows a few configs, whose compilation ends late.
TEST_F(OwnKernelTuningTest, ConfigsThatCompileSlowlyAreVerifiedAndCompared) {
  nvrtc_->compilation_ns = 5'000'000'000;
  behaviours()["swiglu<256, 1>"].time_ns = 5e6;
  EXPECT_NE(winner_of(create(large_swiglu()), 4096), "swiglu<256, 1>");
}

// The time allows half of the configs, without the fastest one.
TEST_F(OwnKernelTuningTest, NeighboursOfAFastConfigAreTriedWhereTimeIsShort) {
  set_variable("DORAJIT_TUNE_SECONDS", "5");
  nvrtc_->compilation_ns = 20'000'000;
  for (int block = 16; block <= 1024; block += 16) {
    for (const int vec : {1, 2, 4, 8}) {
      behaviours()[std::format("swiglu<{}, {}>", block, vec)].time_ns =
          (1 + std::abs(block - 688) / 100.0) * 4e4 / vec;
    }
  }
  EXPECT_EQ(winner_of(create(large_swiglu()), 4096), "swiglu<688, 8>");
}

TEST_F(OwnKernelTuningTest, WrongConfigsAreQuarantined) {
  // Each would win.
  behaviours()["swiglu<64, 1>"] = {.time_ns = 1e5,
                                   .spoil = [](float* out, long long n) { out[n / 2] += 1; }};
  behaviours()["swiglu<64, 2>"] = {.time_ns = 1e5,
                                   .spoil = [](float* out, long long n) { out[n] = 1; }};
  behaviours()["swiglu<64, 4>"] = {.time_ns = 1e5,
                                   .spoil = [](float* out, long long) { out[-1] = 1; }};
  behaviours()["swiglu<64, 8>"] = {.time_ns = 1e5, .result = 1};
  behaviours()["swiglu<128, 8>"].time_ns = 3e5;
  // With the room that guards take: tuning runs on buffers of its own.
  EXPECT_EQ(winner_of(create(swiglu()), 4096), "swiglu<128, 8>");
}

TEST_F(OwnKernelTuningTest, OutputThatIsNotWrittenWholeIsReported) {
  for (const char* entry : {"swiglu<256, 1>", "swiglu<128, 4>"}) {
    behaviours()[entry].time_ns = 1e5;
    behaviours()[entry].leaves = 96;
  }
  const std::string log = log_of_untuned_call("leaves_some");
  EXPECT_THAT(log, HasSubstr("does not write all of its outputs"));
  EXPECT_THAT(log, HasSubstr("`out`: 96 of 4096 elements are left as they were"));
}

TEST_F(OwnKernelTuningTest, OutputThatIsReadBeforeItIsWrittenIsReported) {
  behaviours()["swiglu<256, 1>"].adds_to_out = true;
  EXPECT_THAT(log_of_untuned_call("reads_out"),
              AllOf(HasSubstr("reads an output before it writes it"),
                    HasSubstr("`out` depends on what was in its memory")));
}

TEST_F(OwnKernelTuningTest, CandidateThatCrashesItsCompilingProcessIsQuarantined) {
  set_variable("DORAJIT_WORKER", DORAJITD);
  set_variable("DORAJIT_TUNE_SECONDS", "20");
  set_variable("DORAJIT_LOG", "info");
  const Json json = with(swiglu(), {{"/options", {"-DCRASHES=swiglu<64, 8>"}}});
  behaviours()["swiglu<64, 8>"].time_ns = 1e4;
  behaviours()["swiglu<128, 4>"].time_ns = 2e5;
  const auto* const kernel = create(json);
  {
    const bindings::LogCapture log;
    EXPECT_EQ(winner_of(kernel, 4096), "swiglu<128, 4>");
    EXPECT_THAT(log.text(), HasSubstr("NVRTC crashed"));
  }
  const bindings::LogCapture log;
  EXPECT_EQ(winner_of(kernel, 8192), "swiglu<128, 4>");
  EXPECT_THAT(log.text(), testing::Not(HasSubstr("NVRTC crashed")));
}

TEST_F(OwnKernelTuningTest, CandidateWhoseCompilingProcessDoesNotEndCostsNoMoreThanTheBudget) {
  set_variable("DORAJIT_WORKER", DORAJITD);
  set_variable("DORAJIT_TUNE_SECONDS", "8");
  const Json json = with(swiglu(), {{"/options", {"-DNEVER_ENDS=swiglu<64, 8>"}}});
  behaviours()["swiglu<128, 4>"].time_ns = 2e5;
  set_variable("DORAJIT_LOG", "info");
  const bindings::LogCapture log;
  EXPECT_EQ(winner_of(create(json), 4096), "swiglu<128, 4>");
  EXPECT_THAT(log.text(), HasSubstr("did not end within"));
  const auto limit = std::chrono::milliseconds(compile::kCompileTimeLimit).count();
  EXPECT_THAT(log.text(), testing::Not(HasSubstr(std::format("within {} ms", limit))));
}

TEST_F(OwnKernelTuningTest, ToleranceAllowsAsMuchAsItSays) {
  behaviours()["swiglu<64, 4>"] = {.time_ns = 1e5, .spoil = [](float* out, long long n) {
                                     for (long long i = 0; i < n; ++i) out[i] *= 1.0001F;
                                   }};
  behaviours()["swiglu<128, 4>"] = {.time_ns = 1e4, .spoil = [](float* out, long long n) {
                                      for (long long i = 0; i < n; ++i) out[i] *= 1.01F;
                                    }};
  const Json json = with(swiglu(), {{"/tolerance", 0.001}});
  SwigluCall call(4096);
  ASSERT_EQ(call.run(engine(), create(json)).status, DORAJIT_OK);
  EXPECT_EQ(launches().back().entry, "swiglu<64, 4>");
}

TEST_F(OwnKernelTuningTest, DefaultThatVariesIsSaidToNeedATolerance) {
  behaviours()["swiglu<256, 1>"].spoil = [](float* out, long long) {
    static float noise = 0;
    out[0] += noise += 1;
  };
  set_variable("DORAJIT_LOG", "warning");
  const bindings::LogCapture log;
  SwigluCall call(4096);
  ASSERT_EQ(call.run(engine(), create(swiglu())).status, DORAJIT_OK);
  EXPECT_EQ(launches().back().entry, "swiglu<256, 1>");
  EXPECT_THAT(log.text(), HasSubstr("does not give the same bits twice"));
}

TEST_F(OwnKernelTuningTest, DefaultThatVariesBeyondItsToleranceIsSaidTo) {
  behaviours()["swiglu<256, 1>"].spoil = [](float* out, long long) {
    static float noise = 0;
    out[0] += noise += 1e6F;
  };
  set_variable("DORAJIT_LOG", "warning");
  const bindings::LogCapture log;
  SwigluCall call(4096);
  const Json json = with(swiglu(), {{"/tolerance", 1e-3}});
  ASSERT_EQ(call.run(engine(), create(json)).status, DORAJIT_OK);
  EXPECT_THAT(log.text(), HasSubstr("differ by more than the kernel's tolerance"));
}

// 4104 and 8000 share a problem whose winner has vectors of 8; 4104 % 16 is not 0.
TEST_F(OwnKernelTuningTest, CallThatTheWinnerDoesNotFitRunsTheDefault) {
  const Json json = with(swiglu(), {{"/parameters/VEC", {1, 16}}});
  behaviours()["swiglu<128, 16>"].time_ns = 2e5;
  const auto* const kernel = create(json);
  EXPECT_EQ(winner_of(kernel, 8000), "swiglu<128, 16>");
  EXPECT_EQ(winner_of(kernel, 4104), "swiglu<256, 1>");
  EXPECT_EQ(winner_of(kernel, 4112), "swiglu<128, 16>");
  EXPECT_EQ(statistics().tuned_problems, 1);
}

// The default would read and write past the tensors, and no other config has anything to be
// compared with.
TEST_F(OwnKernelTuningTest, DefaultThatDoesNotFitTheSizesIsNeverLaunched) {
  const Json json = with(swiglu(), {{"/default/VEC", 4}});
  const auto* const kernel = create(json);
  SwigluCall call(4095);
  const auto outcome = call.run(engine(), kernel);
  EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.message, HasSubstr("its constraint \"n % VEC == 0\" does not hold"));
  EXPECT_TRUE(launches().empty());
  EXPECT_EQ(statistics().tuned_problems, 0);
  // Sizes that it fits are tuned as ever.
  behaviours()["swiglu<64, 8>"].time_ns = 2e5;
  EXPECT_EQ(winner_of(kernel, 4096), "swiglu<64, 8>");
}

TEST_F(OwnKernelTuningTest, OddSizesAreTunedAmongWhatFitsThem) {
  behaviours()["swiglu<128, 4>"].time_ns = 2e5;
  behaviours()["swiglu<64, 1>"].time_ns = 3e5;
  EXPECT_EQ(winner_of(create(swiglu()), 4095), "swiglu<64, 1>");
  for (const Launched& launch : launches()) EXPECT_THAT(launch.entry, HasSubstr(", 1>"));
}

// Each launch changes what the next one reads, so that each verification needs it as it was.
TEST_F(OwnKernelTuningTest, InOutArgumentIsTunedOnCopies) {
  adds_to_gate() = true;
  Json json = swiglu();
  json["arguments"][0][1] = "inout";
  behaviours()["swiglu<128, 4>"].time_ns = 2e5;
  SwigluCall call(4096);
  const float before = SwigluCall::at(call.gate, 7);
  ASSERT_EQ(call.run(engine(), create(json)).status, DORAJIT_OK);
  EXPECT_EQ(launches().back().entry, "swiglu<128, 4>");
  EXPECT_EQ(SwigluCall::at(call.gate, 7), before + 1);
  // Poison, as of outputs that are only written, would be about -3e-16.
  for (const Launched& launch : launches()) EXPECT_GT(std::abs(launch.first_gate), 1e-6F);
}

// The same where the description says that it is only read.
TEST_F(OwnKernelTuningTest, ConfigThatWritesAnInputIsNotTuned) {
  adds_to_gate() = true;
  set_variable("DORAJIT_LOG", "warning");
  const bindings::LogCapture log;
  SwigluCall call(8192);  // warnings are logged once for each problem
  ASSERT_EQ(call.run(engine(), create(swiglu())).status, DORAJIT_OK);
  EXPECT_EQ(launches().back().entry, "swiglu<256, 1>");
  EXPECT_THAT(log.text(),
              HasSubstr("writes to an input, or before, after or between the elements of an "
                        "output"));
}

// Copies of large operands would take longer than the launches.
TEST_F(OwnKernelTuningTest, OutputsAreComparedOnTheGpu) {
  const Json json = with(swiglu(), {{"/key", {"T", "n"}}});
  constexpr std::int64_t kLarge = 1 << 16;
  SwigluCall call(kLarge);
  ASSERT_EQ(call.run(engine(), create(json)).status, DORAJIT_OK);
  EXPECT_GT(fake_->comparisons, 0);
  EXPECT_LT(fake_->downloaded_bytes, sizeof(float) * kLarge);
}

// There is room for the two sets that are timed, but not for the three that are compared.
TEST_F(OwnKernelTuningTest, OutputsAreComparedOnTheHostIfTheGpuHasTooLittleMemory) {
  set_variable("DORAJIT_TUNE_SECONDS", "4");  // the host takes long
  constexpr std::int64_t kLarge = 1 << 16;
  fake_->allocation_limit = sizeof(float) * kLarge * 3 * 5 / 2;
  behaviours()["swiglu<64, 4>"] = {.time_ns = 1e5,
                                   .spoil = [](float* out, long long n) { out[n / 2] += 1; }};
  behaviours()["swiglu<128, 4>"].time_ns = 2e5;
  EXPECT_EQ(winner_of(create(swiglu()), kLarge), "swiglu<128, 4>");
  EXPECT_EQ(fake_->comparisons, 0);
}

}  // namespace
}  // namespace dorajit::tests
