#include "autotune/sources/pinned_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel_templates/sizes.h"
#include "tests/autotune/sources/source_fixture.h"
#include "tests/fakes/captured_log.h"

namespace dorajit::autotune {
namespace {

using launch::ConfigOrigin;
using testing::HasSubstr;

class LockedAnswer : public SourceTest {
 protected:
  launch::ConfigAnswer find(LockedMiss on_miss = LockedMiss::kReport) {
    const cache::Pins pins("", {}, cache::PinFile{.path = "/x/train.lock", .pins = entries_});
    return locked_answer(pins, on_miss, problem_, device_, kernels_);
  }

  // A config that compiles and is not the default.
  kernels::Config other_config() { return space()[1]; }

  void freeze(const kernels::Config& config) {
    const auto entry = pin_of(problem_, config, device_, kernels_);
    ASSERT_TRUE(entry) << entry.error().message;
    entries_ = {*entry};
  }

  void expect_miss(const std::string& why, ConfigOrigin origin, const kernels::Config& config) {
    cache::CapturedLog log;
    for (int i = 0; i < 2; ++i) {
      const auto answer = find();
      EXPECT_FALSE(answer.refusal);
      EXPECT_EQ(answer.origin, origin);
      EXPECT_EQ(answer.config, config);
    }
    EXPECT_EQ(log.count(why), 1) << why;
    const auto refused = find(LockedMiss::kFail);
    ASSERT_TRUE(refused.refusal);
    EXPECT_EQ(refused.refusal->code, StatusCode::kUnsupported);
    EXPECT_THAT(refused.refusal->message, HasSubstr(why));
    EXPECT_THAT(refused.refusal->message, HasSubstr("/x/train.lock"));
    EXPECT_THAT(refused.refusal->message, HasSubstr(to_text(problem_)));
  }

  kernels::Config default_ =
      kernels::default_config(problem_.variant, device_.info().traits, problem_.vector_width);
  std::vector<cache::Pin> entries_;
};

TEST_F(LockedAnswer, EntryOfADeviceOfTheModelAnswers) {
  device_.set_fingerprint("fake/40 GiB");
  freeze(other_config());
  device_.set_fingerprint("fake/39 GiB");
  EXPECT_EQ(find(LockedMiss::kFail).config, other_config());
  device_.set_fingerprint("fake/80 GiB");
  EXPECT_TRUE(find(LockedMiss::kFail).refusal);
}

TEST_F(LockedAnswer, AnswersWithTheConfigOfTheLockFile) {
  freeze(other_config());
  EXPECT_EQ(entries_[0].artifact.size(), 32U);
  EXPECT_EQ(entries_[0].code.size(), 32U);
  EXPECT_NE(entries_[0].compiler, "");
  cache::CapturedLog log;
  for (const LockedMiss on_miss : {LockedMiss::kReport, LockedMiss::kFail}) {
    const auto answer = find(on_miss);
    EXPECT_EQ(answer.origin, ConfigOrigin::kLocked);
    EXPECT_EQ(answer.config, other_config());
    EXPECT_FALSE(answer.refusal);
  }
  EXPECT_EQ(log.size(), 0);
  EXPECT_EQ(statistics_.compilations, 1);
  EXPECT_EQ(statistics_.trials, 0);
}

TEST_F(LockedAnswer, ProblemMissingFromTheFileRunsItsDefaultOrFails) {
  expect_miss("it has no entry for this problem on fake", ConfigOrigin::kDefault, default_);
  freeze(other_config());
  entries_[0].device = "another";
  problem_.key[kernels::kCols] = 301;
  expect_miss("it has no entry for this problem on fake", ConfigOrigin::kDefault, default_);
}

TEST_F(LockedAnswer, DifferentCodeIsAMissWithTheConfigOfTheFile) {
  freeze(other_config());
  const auto frozen = entries_;
  problem_.key[kernels::kRows] = 5;
  entries_[0].problem = to_text(problem_);
  entries_[0].code = std::string(32, '0');
  expect_miss("its code was 00000000000000000000000000000000 and is " + frozen[0].code,
              ConfigOrigin::kLocked, other_config());
  problem_.key[kernels::kRows] = 6;
  entries_[0].problem = to_text(problem_);
  entries_[0].artifact = std::string(32, '1');
  expect_miss("its artifact was 11111111111111111111111111111111", ConfigOrigin::kLocked,
              other_config());
  problem_.key[kernels::kRows] = 7;
  entries_[0].problem = to_text(problem_);
  entries_[0].compiler = "another compiler 1.0";
  expect_miss("its compiler was another compiler 1.0", ConfigOrigin::kLocked, other_config());
}

TEST_F(LockedAnswer, ConfigWithTooWideVectorsIsNotUsed) {
  freeze(other_config());
  entries_[0].config.set(kernels::kVectorWidth, 16);
  expect_miss("its vectors of 16 elements do not fit", ConfigOrigin::kDefault, default_);
}

// A built-in kernel would be used instead, with another config.
TEST_F(LockedAnswer, ConfigThatDoesNotCompileIsNotUsed) {
  freeze(other_config());
  problem_.key[kernels::kRows] = 9;
  entries_[0].problem = to_text(problem_);
  entries_[0].config.set(kernels::kColumnsOfProgram, -4);
  expect_miss("-r1-v1-u1-c0 is invalid: its template does not allow it", ConfigOrigin::kDefault,
              default_);
}

}  // namespace
}  // namespace dorajit::autotune
