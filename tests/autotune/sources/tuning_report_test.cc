#include <gtest/gtest.h>

#include "autotune/sources/tuning_config_source.h"
#include "kernel_templates/templates/streaming_configs.h"
#include "tests/variants.h"

namespace dorajit::autotune {
namespace {

TEST(TuningReport, ReportContainsKernelKeyTimeAndBestConfig) {
  const launch::Problem problem =
      launch::make_problem(tests::float_compose(), kernels::DeviceKind::kCpu, {16, 300});
  const TuneResult result{
      .winner = kernels::as_config({.block_size = 512, .num_warps = 2}),
      .default_config = kernels::as_config({.block_size = 1024, .num_warps = 1}),
      .winner_ns = 1500,
      .default_ns = 2000,
      .trials = std::vector<TrialResult>(12)};
  EXPECT_EQ(tuning_report(problem, result, 0.534),
            "dorajit autotuning for kernel compose, with key as " + to_text(problem) +
                ", finished after 0.53s, best config selected: b512-w2-r1-v1-u1-c0; 1.50 us, "
                "default b1024-w1-r1-v1-u1-c0 2.00 us, 12 configs\n");
}

}  // namespace
}  // namespace dorajit::autotune
