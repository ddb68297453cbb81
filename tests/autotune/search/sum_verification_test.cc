// Verification and tuning of kernels with sums.
#include <gtest/gtest.h>

#include <algorithm>

#include "autotune/search/problem_tuner.h"
#include "autotune/search/verification.h"
#include "kernel_templates/config.h"
#include "kernel_templates/partial_sums.h"
#include "tests/conformance/variant_lists.h"
#include "tests/fakes/fake_device.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit::autotune {
namespace {

using cache::Verdict;
using kernels::Broadcast;
using kernels::Variant;
using tests::Misbehaviour;

constexpr Broadcast kBroadcasts[] = {Broadcast::kPerColumn, Broadcast::kPerRow};

Settings without_compiler() {
  Settings settings;
  settings.host_compiler = "none";
  return settings;
}

class SumVerification : public testing::Test {
 protected:
  static launch::Problem problem_of(const Variant& variant, std::int64_t cols = 70) {
    return launch::make_problem(variant, kernels::DeviceKind::kCpu, {64, cols});
  }

  // bf16 matrices, f32 gain and f32 sum.
  static Variant backward(Broadcast broadcast) {
    Variant variant = tests::plain_mixes(kernels::operation("backward"))[1];
    variant.broadcast = broadcast;
    return variant;
  }

  // The verifier's verdict on a built-in kernel while the device misbehaves.
  Result<Verdict> verify(const Variant& variant, Misbehaviour misbehaviour,
                         std::int64_t cols = 70) {
    DORAJIT_ASSIGN(Verifier verifier, Verifier::make(problem_of(variant, cols), device_));
    DORAJIT_ASSIGN(const launch::ReadyKernel ready, builtin_.get(device_, variant, {}));
    device_.plant(ready.config, misbehaviour);
    auto verdict = verifier.check(ready);
    device_.plant(ready.config, Misbehaviour::kNone);
    return verdict;
  }

  tests::FakeDevice device_{1};
  Statistics statistics_;
  tests::MemoryArtifactStore artifacts_;
  launch::KernelCache builtin_{without_compiler(), nullptr, statistics_};
  launch::KernelCache compiled_{Settings{}, &artifacts_, statistics_};
};

TEST_F(SumVerification, AcceptsTheBuiltinKernelsOfEveryOperation) {
  for (const kernels::Operation* one : tests::operations_with_a_formula()) {
    for (const Variant& variant : tests::in_both_broadcasts(tests::plain_forms(*one))) {
      EXPECT_EQ(verify(variant, Misbehaviour::kNone), Result<Verdict>(Verdict::kOk))
          << to_text(variant);
    }
  }
}

TEST_F(SumVerification, AcceptsTheBuiltinKernelsForSeveralSpansOfColumns) {
  constexpr std::int64_t kCols = kernels::kPartialColumns + 1;
  for (const Broadcast broadcast : kBroadcasts) {
    EXPECT_EQ(verify(backward(broadcast), Misbehaviour::kNone, kCols),
              Result<Verdict>(Verdict::kOk));
  }
}

TEST_F(SumVerification, WrongBitInASumIsDetected) {
  for (const Broadcast broadcast : kBroadcasts) {
    EXPECT_EQ(verify(backward(broadcast), Misbehaviour::kWrongSum),
              Result<Verdict>(Verdict::kWrongBits));
  }
}

TEST_F(SumVerification, WrongBitOfTheSecondStageIsDetected) {
  for (const Broadcast broadcast : kBroadcasts) {
    EXPECT_EQ(verify(backward(broadcast), Misbehaviour::kWrongSecondStage),
              Result<Verdict>(Verdict::kWrongBits));
  }
}

TEST_F(SumVerification, PartialSumsAddedInAnotherOrderAreDetected) {
  for (const std::int64_t cols : {49, 70, 300, 5000}) {
    for (const Broadcast broadcast : kBroadcasts) {
      EXPECT_EQ(verify(backward(broadcast), Misbehaviour::kPartialsInOrder, cols),
                Result<Verdict>(Verdict::kWrongBits))
          << cols;
    }
  }
}

TEST_F(SumVerification, WriteBeyondTheWorkspaceIsDetected) {
  for (const Broadcast broadcast : kBroadcasts) {
    EXPECT_EQ(verify(backward(broadcast), Misbehaviour::kWritesPastWorkspace),
              Result<Verdict>(Verdict::kOutOfBounds));
  }
}

TEST_F(SumVerification, WrongBitInAnOutputBesideTheSumIsDetected) {
  for (const Broadcast broadcast : kBroadcasts) {
    EXPECT_EQ(verify(backward(broadcast), Misbehaviour::kWrongBits),
              Result<Verdict>(Verdict::kWrongBits));
  }
}

// Otherwise a kernel that skips a partial sum would find the right one of the previous kernel.
TEST_F(SumVerification, PartialSumsArePoisonedBeforeEachLaunch) {
  const Variant variant = backward(Broadcast::kPerColumn);
  auto operands = ScratchOperands::make(device_, variant, {.sizes = {600, 8, 8}});
  ASSERT_TRUE(operands);
  const auto arguments = operands->arguments(0);
  const auto partial_sums = [&] {
    const auto* first = static_cast<const float*>(arguments.workspace);
    return std::vector<float>(first, first + std::ptrdiff_t{3} * 8);
  };
  const auto poisoned = partial_sums();
  const auto ready = builtin_.get(device_, variant, {});
  ASSERT_TRUE(ready);
  ASSERT_TRUE(device_.launch(*ready->kernel, ready->config, arguments, nullptr));
  for (std::size_t i = 0; i < poisoned.size(); ++i) EXPECT_NE(partial_sums()[i], poisoned[i]);
  ASSERT_TRUE(operands->poison(0));
  EXPECT_EQ(partial_sums(), poisoned);
}

TEST_F(SumVerification, AcceptsEveryConfigOfTheComprehensiveSpace) {
  for (const Broadcast broadcast : kBroadcasts) {
    const launch::Problem problem = problem_of(backward(broadcast));
    auto verifier = Verifier::make(problem, device_);
    ASSERT_TRUE(verifier);
    for (const auto& config : kernels::config_space(problem.variant, device_.info().traits, 1,
                                                    kernels::SpaceKind::kComprehensive)) {
      const auto ready = compiled_.get(device_, problem.variant, config);
      ASSERT_TRUE(ready) << ready.error().message << ready.error().log;
      EXPECT_EQ(verifier->check(*ready), Result<Verdict>(Verdict::kOk)) << to_text(config);
    }
  }
}

TEST_F(SumVerification, TuningQuarantinesAConfigWhoseSecondStageIsWrong) {
  const launch::Problem problem = problem_of(backward(Broadcast::kPerColumn));
  const auto space =
      kernels::config_space(problem.variant, device_.info().traits, 1, kernels::SpaceKind::kSlim);
  ASSERT_GT(space.size(), 1U);
  device_.set_time_ns(space[1], 0.1e6);
  device_.plant(space[1], Misbehaviour::kWrongSecondStage);
  const TuningSession session(problem, device_.info(), kernels::SpaceKind::kSlim, device_.clock());
  const auto result = tune_problem(session, device_, compiled_, {.seconds = 5}, statistics_);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->winner, space.front());
  const auto trial = std::ranges::find(result->trials, space[1], &TrialResult::config);
  ASSERT_NE(trial, result->trials.end());
  EXPECT_EQ(trial->verdict, Verdict::kWrongBits);
}

}  // namespace
}  // namespace dorajit::autotune
