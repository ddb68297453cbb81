// Every operation on the CPU device: every bit, with compiled and with built-in kernels.
#include "tests/conformance/op_conformance.h"

#include <gtest/gtest.h>

#include <numeric>

#include "runtime/device/cpu/cpu_device.h"
#include "tests/fakes/memory_artifact_store.h"

namespace dorajit::tests {
namespace {

std::string join(const std::vector<std::string>& lines) {
  return std::accumulate(lines.begin(), lines.end(), std::string(),
                         [](std::string text, const auto& line) { return text + line + "\n"; });
}

Settings without_compiler() {
  Settings settings;
  settings.host_compiler = "none";
  return settings;
}

// These lists are limited, because compilations are slow.
constexpr std::size_t kSampledMixes = 16;
constexpr std::size_t kSampledMixesOfBackward = 12;
constexpr std::size_t kFewMixes = 4;
constexpr std::size_t kManyMixes = 80;

class OpsOnCpu : public testing::Test {
 protected:
  void check_compiled(const Variants& variants, Configs configs, CaseList list) {
    const auto failures = check_op(device_, compiled_, variants, configs, list);
    EXPECT_TRUE(failures.empty()) << join(failures);
    EXPECT_EQ(statistics_.builtin_kernels, 0) << "the host compiler must have been used";
  }

  // On the CPU, configs differ only in their workers.
  void check_builtin(const Variants& variants, CaseList list) {
    const auto failures = check_op(device_, builtin_, variants, Configs::kOneInTurn, list);
    EXPECT_TRUE(failures.empty()) << join(failures);
    EXPECT_EQ(statistics_.compilations, 0);
  }

  device::CpuDevice device_;
  Statistics statistics_;
  MemoryArtifactStore artifacts_;
  launch::KernelCache compiled_{Settings{}, &artifacts_, statistics_};
  launch::KernelCache builtin_{without_compiler(), nullptr, statistics_};
};

TEST_F(OpsOnCpu, SlicesTogetherRunEveryKernel) {
  constexpr std::size_t kCount = 3;
  const Variants variants = sampled_mixes(kernels::operation("compose"), kSampledMixes);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_LT(statistics_.builtin_kernels, variants.size());
    const auto failures = check_op(device_, builtin_, variants, Configs::kOneInTurn, CaseList::kFew,
                                   {.index = i, .count = kCount});
    EXPECT_TRUE(failures.empty()) << join(failures);
  }
  EXPECT_EQ(statistics_.builtin_kernels, variants.size());
}

TEST_F(OpsOnCpu, ComposeIsExactForEveryTypeMix) {
  check_compiled(kernels::all_variants(kernels::operation("compose")), Configs::kOneInTurn,
                 CaseList::kAll);
}
TEST_F(OpsOnCpu, ComposePerRowIsExactForSampledMixes) {
  check_compiled(in_both_broadcasts(sampled_mixes(kernels::operation("compose"), kSampledMixes)),
                 Configs::kOneInTurn, CaseList::kAll);
}
TEST_F(OpsOnCpu, ComposeInnerIsExactForSampledMixes) {
  check_compiled(
      in_both_broadcasts(sampled_mixes(kernels::operation("compose_inner"), kSampledMixes)),
      Configs::kOneInTurn, CaseList::kAll);
}
TEST_F(OpsOnCpu, NormAssemblyIsExactForSampledMixes) {
  check_compiled(sampled_mixes(kernels::operation("norm_assembly"), kSampledMixes),
                 Configs::kOneInTurn, CaseList::kAll);
}
TEST_F(OpsOnCpu, BackwardIsExactForSampledMixesAndEverySubsetOfOutputs) {
  check_compiled(in_both_broadcasts(with_every_subset(
                     sampled_mixes(kernels::operation("backward"), kSampledMixesOfBackward))),
                 Configs::kOneInTurn, CaseList::kFew);
}
TEST_F(OpsOnCpu, ResidualFormsAreExactForSampledMixes) {
  for (const std::string_view op :
       {"compose_residual", "residual_backward", "magnitude_backward"}) {
    check_compiled(
        in_both_broadcasts(with_every_subset(sampled_mixes(kernels::operation(op), kFewMixes))),
        Configs::kOneInTurn, CaseList::kFew);
  }
}
TEST_F(OpsOnCpu, GatedActivationsAreExactForSampledMixes) {
  for (const std::string_view op : {"gated_silu", "gated_gelu", "gated_gelu_tanh",
                                    "gated_silu_backward", "gated_gelu_tanh_backward"}) {
    check_compiled(
        in_both_broadcasts(with_every_subset(sampled_mixes(kernels::operation(op), kFewMixes))),
        Configs::kOneInTurn, CaseList::kFew);
  }
}
TEST_F(OpsOnCpu, EveryConfigOfTheComprehensiveSpaceIsExact) {
  for (const std::string_view op : {"compose", "compose_inner", "backward"}) {
    check_compiled(in_both_broadcasts({plain_mixes(kernels::operation(op))[1]}),
                   Configs::kComprehensive, CaseList::kFew);
  }
}
TEST_F(OpsOnCpu, BuiltinKernelsAreExactForEveryTypeMix) {
  for (const kernels::Operation* one : operations_with_a_formula()) {
    const bool has_many = one->name.contains("residual") || one->name == "magnitude_backward" ||
                          one->name.starts_with("gated_");
    check_builtin(in_both_broadcasts(has_many ? sampled_mixes(*one, kManyMixes)
                                              : kernels::all_variants(*one)),
                  CaseList::kFew);
  }
}
TEST_F(OpsOnCpu, BuiltinKernelsAreExactForPlainMixesInEveryCase) {
  for (const kernels::Operation* one : operations_with_a_formula()) {
    check_builtin(in_both_broadcasts(plain_forms(*one)),
                  one->num_sums() > 1 ? CaseList::kFew : CaseList::kAll);
  }
}

}  // namespace
}  // namespace dorajit::tests
