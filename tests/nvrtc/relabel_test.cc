// dorajit_relabel: which trials are kept after a change of kernel sources.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cache/database/trial_files.h"
#include "kernel_templates/config_text.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/hash.h"
#include "runtime/compile/nvrtc_compiler.h"
#include "runtime/launch/problem.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

constexpr const char* kEarlierSources = "0123456789abcdef0123456789abcdef";

class Relabel : public testing::Test {
 protected:
  void SetUp() override {
    const char* hint = getenv("DORAJIT_NVRTC");
    compile::NvrtcCompiler compiler(hint != nullptr ? hint : "", nullptr);
    if (const auto identity = compiler.identity(); !identity) {
      GTEST_SKIP() << "no NVRTC here: " << identity.error().message;
    }
    const auto space = kernels::config_space(
        problem_.variant, {.kind = kernels::DeviceKind::kCuda, .processors = 132}, 8,
        kernels::SpaceKind::kSlim);
    for (const std::size_t i : {0, 1}) {
      trials_.push_back({.problem = to_text(problem_),
                         .device = "cuda/NVIDIA H200/sm_90/132 SMs/61440 KiB L2/140 GiB",
                         .environment = {"13.0", "policy", "space", "1", kEarlierSources},
                         .config = space[i],
                         .default_config = space[0],
                         .median_ns = 1000,
                         .mad_ns = 1,
                         .samples = 24,
                         .created_unix_s = 1'700'000'000,
                         .host = "host"});
    }
    ASSERT_TRUE(write_trial_file(file_, trials_));
    ASSERT_EQ(std::system(std::format("{} codes {} > {}", DORAJIT_RELABEL, file_, codes_).c_str()),
              0);
  }

  // What `codes` printed, as if it had been built from the earlier sources.
  [[nodiscard]] std::string earlier_codes() const {
    std::string text = read_file(codes_);
    for (std::size_t at; (at = text.find(sources_)) != std::string::npos;) {
      text.replace(at, sources_.size(), kEarlierSources);
    }
    return text;
  }

  std::vector<Trial> apply(const std::string& codes) {
    write_file(codes_, codes);
    EXPECT_EQ(
        std::system(
            std::format("{} apply {} {} 2> /dev/null", DORAJIT_RELABEL, file_, codes_).c_str()),
        0);
    const auto file = read_trial_file(file_);
    EXPECT_TRUE(file && file->is_complete());
    return file ? file->trials : std::vector<Trial>{};
  }

  const launch::Problem problem_ =
      *launch::parse_problem("compose/bf16,bf16,bf16,bf16/v8/c4096/r12");
  const std::string sources_ =
      hash_hex(kernels::source_identity(problem_.variant, kernels::DeviceKind::kCuda));
  TemporaryDirectory directory_;
  const std::string file_ = directory_.file("trials.jsonl");
  const std::string codes_ = directory_.file("codes.txt");
  std::vector<Trial> trials_;
};

TEST_F(Relabel, TrialsOfEqualMachineCodeGetThePresentSources) {
  const std::vector<Trial> kept = apply(earlier_codes());
  ASSERT_EQ(kept.size(), 2);
  for (const Trial& trial : kept) EXPECT_EQ(trial.environment.templates, sources_);
}

TEST_F(Relabel, TrialsOfOtherMachineCodeAreRemoved) {
  std::string codes = earlier_codes();
  const std::size_t end_of_line = codes.find('\n');
  codes[end_of_line - 1] = codes[end_of_line - 1] == '0' ? '1' : '0';
  const std::vector<Trial> kept = apply(codes);
  ASSERT_EQ(kept.size(), 1);
  EXPECT_FALSE(codes.starts_with(
      std::format("{} {} ", to_text(problem_.variant), to_text(kept.front().config))));
}

TEST_F(Relabel, TrialsOfOtherSourcesThanTheCodesAreRemoved) {
  EXPECT_TRUE(apply(read_file(codes_)).empty());
}

}  // namespace
}  // namespace dorajit::cache
