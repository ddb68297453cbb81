// The cost of the other device's winners, on problems that were tuned on two CPUs of different
// vendors.
#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "autotune/sources/fallback_chain.h"
#include "tests/autotune/sources/recorded_trials.h"

namespace dorajit::autotune {
namespace {

using cache::Winner;

constexpr int kProcessors = 2;

TEST(TwoDevices, WinnersOfTheOtherDeviceAreNearlyAsFastInTheMedian) {
  const RecordedTrials recorded(std::string(DORAJIT_SOURCE_DIR) +
                                "/benchmarks/results/cpu/two_machines.jsonl");
  std::map<std::string, Regrets> of_other;
  std::map<std::string, Regrets> of_default;
  for (const Winner& winner : recorded.winners()) {
    const auto problem = launch::parse_problem(winner.problem);
    ASSERT_TRUE(problem) << winner.problem;
    const Winner* other =
        nearest_device(recorded.winners(), {.problem = *problem,
                                            .device = winner.device,
                                            .templates = winner.environment.templates,
                                            .traits = traits_of(winner, kProcessors)});
    ASSERT_NE(other, nullptr) << winner.problem;
    const auto regret = recorded.regret(winner, other->config);
    ASSERT_TRUE(regret) << winner.problem;
    of_other[winner.device].values.push_back(*regret);
    of_default[winner.device].values.push_back(
        recorded.regret(winner, winner.default_config).value());
  }
  ASSERT_EQ(of_other.size(), 2U);
  for (auto& [device, regrets] : of_other) {
    std::cout << device << "\n  the other's winners, " << regrets.summary() << "\n  the default, "
              << of_default[device].summary() << "\n";
    EXPECT_GE(regrets.values.size(), 30);
    EXPECT_LE(regrets.quantile(0.5), 1.05);
  }
}

}  // namespace
}  // namespace dorajit::autotune
