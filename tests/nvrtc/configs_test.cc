// The configs of the CUDA kernels' spaces, compiled for every architecture listed in the README.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernel_templates/config.h"
#include "kernel_templates/spaces.h"
#include "runtime/compile/nvrtc_compiler.h"
#include "tests/conformance/parallel_for.h"
#include "tests/conformance/variant_lists.h"

namespace dorajit::compile {
namespace {

using kernels::Config;
using kernels::DeviceKind;
using kernels::Variant;
using tests::Variants;

constexpr const char* kArchitectures[] = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"};

struct Task {
  Variant variant;
  Config config;
  const char* arch;
};

std::string to_text(const Task& task) {
  return to_text(task.variant) + " " + to_text(task.config) + " " + task.arch;
}

std::vector<Config> slim_space(const Variant& variant) {
  return kernels::config_space(variant, {.kind = DeviceKind::kCuda},
                               kernels::widest_vector(variant, DeviceKind::kCuda),
                               kernels::SpaceKind::kSlim);
}

// The type mixes of each form of a kernel: operation, broadcast, and all outputs or only the sum.
std::vector<Variants> forms() {
  std::vector<Variants> forms;
  for (const kernels::Operation* one : tests::operations_with_a_formula()) {
    const Variants mixes = tests::plain_mixes(*one);
    for (const Variants& outputs : {mixes, tests::with_only_the_sum(mixes)}) {
      const Variants both = tests::in_both_broadcasts(outputs);
      const auto rows = std::ranges::find(both, kernels::Broadcast::kPerRow, &Variant::broadcast);
      for (const Variants& form : {Variants(both.begin(), rows), Variants(rows, both.end())}) {
        if (!form.empty()) forms.push_back(form);
      }
    }
  }
  return forms;
}

// Otherwise each config is compiled for one of the mixes.
#ifdef DORAJIT_EVERY_MIX
constexpr bool kEveryMix = true;
#else
constexpr bool kEveryMix = false;
#endif

// Compiles one in this many: the residual forms differ from the others by only one or two
// operations per element, and gated activations from each other by their function.
std::size_t one_in(const Variant& variant) {
  const std::string_view name = variant.operation->name;
  return kEveryMix || !(name.contains("residual") || name.contains("gelu")) ? 1 : 10;
}

class NvrtcConfigs : public testing::Test {
 protected:
  void SetUp() override {
    const char* hint = getenv("DORAJIT_NVRTC");
    compiler_ = std::make_unique<NvrtcCompiler>(hint != nullptr ? hint : "", nullptr);
    if (const auto identity = compiler_->identity(); !identity) {
      GTEST_SKIP() << "no NVRTC here: " << identity.error().message;
    }
  }

  void expect_no_spills(const std::vector<Task>& tasks) {
    tests::parallel_for(tasks.size(), [&](std::size_t i) {
      const Task& task = tasks[i];
      const auto artifact = compiler_->compile({.variant = task.variant,
                                                .config = task.config,
                                                .target = {DeviceKind::kCuda, task.arch}});
      ASSERT_TRUE(artifact) << to_text(task) << artifact.error().log;
      EXPECT_TRUE(
          artifact->code.starts_with("\x7f"
                                     "ELF"))
          << to_text(task);
      EXPECT_GT(artifact->resources.registers, 0) << to_text(task);
      // The second stage keeps the waiting nodes of two trees of doubles in local memory.
      if (task.variant.operation->num_sums() > 1 &&
          kernels::compute_type(task.variant) == kernels::ElementType::kFloat64) {
        return;
      }
      EXPECT_EQ(artifact->resources.spill_store_bytes, 0) << to_text(task);
      EXPECT_EQ(artifact->resources.spill_load_bytes, 0) << to_text(task);
      EXPECT_EQ(artifact->resources.stack_bytes, 0) << to_text(task);
    });
  }

  std::unique_ptr<NvrtcCompiler> compiler_;
};

TEST_F(NvrtcConfigs, DefaultsCompileForEveryArchitectureWithoutSpills) {
  std::vector<Task> tasks;
  std::size_t turn = 0;
  for (const Variants& mixes : forms()) {
    for (std::size_t i = 0; i < std::size(kArchitectures); ++i) {
      const Variant& variant = mixes[i % mixes.size()];
      if (turn++ % one_in(variant) != 0) continue;
      tasks.push_back({variant, slim_space(variant).front(), kArchitectures[i]});
    }
  }
  expect_no_spills(tasks);
}

// One architecture per config, in turn, so that the configs of a template cover several.
TEST_F(NvrtcConfigs, EveryConfigOfTheSlimSpaceCompilesWithoutSpills) {
  std::vector<Task> tasks;
  std::size_t turn = 0;
  for (const Variants& mixes : forms()) {
    for (std::size_t mix = 0; mix < mixes.size(); ++mix) {
      const std::vector<Config> space = slim_space(mixes[mix]);
      for (std::size_t i = 0; i < space.size(); ++i) {
        if (!kEveryMix && i % mixes.size() != mix) continue;
        if (i % one_in(mixes[mix]) != 0) continue;
        tasks.push_back({mixes[mix], space[i], kArchitectures[turn++ % std::size(kArchitectures)]});
      }
    }
  }
  expect_no_spills(tasks);
}

// The configs and the instructions of weight_norm depend on the architecture.
TEST_F(NvrtcConfigs, EveryConfigOfWeightNormCompilesWithoutSpills) {
  using enum kernels::ElementType;
  std::vector<Task> tasks;
  for (const auto& types :
       {std::array{kBfloat16, kBfloat16, kBfloat16}, std::array{kFloat32, kFloat16, kFloat16},
        std::array{kBfloat16, kFloat32, kFloat32}}) {
    Variant variant{
        .operation = &kernels::operation("weight_norm"),
        .types = {types[0], types[1], types[2], kFloat32, kAbsent, kAbsent, kFloat32, kFloat32}};
    for (const char* arch : {"sm_75", "sm_80", "sm_90", "sm_120"}) {
      const Target target{DeviceKind::kCuda, arch};
      const int widest = kernels::widest_vector(variant, DeviceKind::kCuda);
      for (const int width : {widest, 1}) {
        for (const Config& config :
             kernels::config_space(variant, traits_of(target), width, kernels::SpaceKind::kSlim)) {
          const bool is_one_of_many = config['p'] != 4 && config['p'] != 0;
          if (is_one_of_many && !kEveryMix) continue;  // parts are a constant in the code
          tasks.push_back({variant, config, arch});
        }
      }
    }
  }
  expect_no_spills(tasks);
}

TEST_F(NvrtcConfigs, EveryConfigOfComposeLowRankCompilesWithoutSpills) {
  using enum kernels::ElementType;
  std::vector<Task> tasks;
  for (const auto& types : {std::array{kBfloat16, kBfloat16, kAbsent, kAbsent},
                            std::array{kBfloat16, kBfloat16, kBfloat16, kBfloat16},
                            std::array{kFloat16, kFloat32, kFloat32, kFloat32}}) {
    const Variant variant{
        .operation = &kernels::operation("compose_low_rank"),
        .types = {types[0], types[0], types[1], kFloat32, types[2], types[1], types[3]}};
    const int widest = kernels::widest_vector(variant, DeviceKind::kCuda);
    std::size_t turn = 0;
    for (const int width : {widest, 1}) {
      for (const char* arch : {"sm_80", "sm_90", "sm_100", "sm_120"}) {
        const auto space = kernels::config_space(
            variant, traits_of(Target{DeviceKind::kCuda, arch}), width, kernels::SpaceKind::kSlim);
        for (const Config& config : space) {
          // With mma.sync, one in twelve of the other configs.
          const bool is_its_turn = kEveryMix && width == widest && turn++ % 12 == 0;
          if (config == space.front() || is_its_turn) tasks.push_back({variant, config, arch});
        }
        ++turn;
      }
    }
    // With wgmma, all configs.
    const kernels::SpaceKind kind =
        kEveryMix ? kernels::SpaceKind::kComprehensive : kernels::SpaceKind::kSlim;
    for (const Config& config :
         kernels::config_space(variant, traits_of(Target{DeviceKind::kCuda, "sm_90"}), widest, kind,
                               {4096, 4096, 384})) {
      tasks.push_back({variant, config, "sm_90"});
    }
  }
  expect_no_spills(tasks);
}

// They serve only as a comparison in measurements: one architecture is enough.
TEST_F(NvrtcConfigs, TheUnfusedPassesCompileWithoutSpills) {
  std::vector<Task> tasks;
  for (const std::string_view name :
       {"scale_by_scalar", "scale_by_gain", "scale_by_gain_minus_one", "add"}) {
    const Variant variant = tests::plain_mixes(kernels::operation(name))[1];
    tasks.push_back({variant, slim_space(variant).front(), "sm_90"});
  }
  expect_no_spills(tasks);
}

}  // namespace
}  // namespace dorajit::compile
