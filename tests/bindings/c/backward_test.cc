// The gradients that dorajit_backward computes on the CPU. Without d_gain, inner is neither read
// nor checked.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/bindings/c/backward_fixture.h"

namespace dorajit::bindings {
namespace {

TEST_F(BackwardTest, EqualsPlainLoops) {
  ASSERT_EQ(run(call()).message, "");
  expect_results();
  EXPECT_EQ(statistics_of(engine_.get()).launches, 1);
}

TEST_F(BackwardTest, EqualsPlainLoopsForRaggedSizes) {
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1},
                                                                                     {1, 5000},
                                                                                     {7, 3},
                                                                                     {8, 1},
                                                                                     {9, 1025},
                                                                                     {256, 2},
                                                                                     {257, 1},
                                                                                     {600, 33},
                                                                                     {2000, 3}}) {
    resize(rows, cols);
    ASSERT_EQ(run(call()).message, "") << rows << " x " << cols;
    expect_results();
    if (HasFatalFailure()) FAIL() << rows << " x " << cols;
  }
}

TEST_F(BackwardTest, CompiledKernelsEqualPlainLoops) {
  use_compiled_kernels();
  for (const std::int64_t rows : {7, 600}) {
    resize(rows, 33);
    ASSERT_EQ(run(call()).message, "");
    expect_results();
  }
  EXPECT_EQ(statistics_of(engine_.get()).builtin_kernels, 0);
}

TEST_F(BackwardTest, ComputesAnySubsetOfTheGradients) {
  for (const bool compiled : {false, true}) {
    if (compiled) use_compiled_kernels();
    for (int subset = 1; subset < 8; ++subset) {
      const Wanted wanted{
          .d_lora = (subset & 1) != 0, .d_base = (subset & 2) != 0, .d_gain = (subset & 4) != 0};
      resize(300, 9);
      ASSERT_EQ(run(call(wanted)).message, "") << "subset " << subset;
      expect_results(wanted);
      if (HasFatalFailure()) FAIL() << "subset " << subset;
    }
  }
}

TEST_F(BackwardTest, EachGradientHasItsOwnElementType) {
  constexpr std::array kTypes = {ElementType::kBfloat16, ElementType::kFloat16,
                                 ElementType::kFloat32};
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    resize(300, 9);
    d_lora_ = HostArray(kTypes.at(i), d_lora_.size());
    d_base_ = HostArray(kTypes.at((i + 1) % 3), d_base_.size());
    d_gain_ = HostArray(kTypes.at((i + 2) % 3), d_gain_.size());
    ASSERT_EQ(run(call()).message, "");
    expect_results();
  }
}

TEST_F(BackwardTest, Float64IsComputedInFloat64) {
  resize(300, 9, ElementType::kFloat64);
  // 1 + 2^-40 is not representable in float.
  d_out_.set(0, 1 + 0x1p-40);
  inner_.set(0, 1);
  EXPECT_EQ(workspace_.size(), 144U);
  ASSERT_EQ(run(call()).message, "");
  expect_results();
}

TEST_F(BackwardTest, GainMayBeFloat32WithBfloat16Matrices) {
  resize(300, 9, ElementType::kBfloat16);
  gain_ = HostArray(ElementType::kFloat32, 9);
  gain_.fill(1 + 0x1p-12, 0x1p-12, 5);  // all of them would be rounded to 1 in bfloat16
  d_gain_ = HostArray(ElementType::kFloat32, 9);
  ASSERT_EQ(run(call()).message, "");
  expect_results();
}

TEST_F(BackwardTest, WorksInPlace) {
  for (const bool compiled : {false, true}) {
    if (compiled) use_compiled_kernels();
    for (const bool crossed : {false, true}) {
      resize(300, 9);
      const HostArray d_out = d_out_;
      const HostArray inner = inner_;
      BackwardCall in_place = call();
      in_place.d_lora = crossed ? in_place.inner : in_place.d_out;
      in_place.d_base = crossed ? in_place.d_out : in_place.inner;
      ASSERT_EQ(run(in_place).message, "");
      d_lora_ = crossed ? inner_ : d_out_;
      d_base_ = crossed ? d_out_ : inner_;
      d_out_ = d_out;
      inner_ = inner;
      expect_results();
      if (HasFatalFailure()) FAIL() << "crossed " << crossed << ", compiled " << compiled;
    }
  }
}

TEST_F(BackwardTest, SumsOfNoTermsAreZero) {
  const Tensor none(nullptr, ElementType::kFloat32, {0, 10});
  BackwardCall empty = call();
  for (const Tensor** tensor : {&empty.d_out, &empty.inner, &empty.d_lora, &empty.d_base}) {
    *tensor = &none;
  }
  const Tensor no_gain(nullptr, ElementType::kFloat32, {10});
  empty.gain = &no_gain;
  EXPECT_EQ(backward_workspace(none, no_gain).bytes, 0);
  ASSERT_EQ(run(empty).message, "");
  for (std::size_t i = 0; i < d_gain_.size(); ++i) {
    EXPECT_EQ(d_gain_.get(i), 0);
    EXPECT_FALSE(std::signbit(d_gain_.get(i)));
  }
}

TEST_F(BackwardTest, SumsOfNegativeZerosArePlusZero) {
  for (std::size_t i = 0; i < d_out_.size(); ++i) {
    d_out_.set(i, -0.0);
    inner_.set(i, 1);
  }
  ASSERT_EQ(run(call()).message, "");
  for (std::size_t i = 0; i < d_gain_.size(); ++i) EXPECT_FALSE(std::signbit(d_gain_.get(i)));
}

TEST_F(BackwardTest, EmptyCallsWithoutASumDoNothing) {
  const Tensor none(nullptr, ElementType::kFloat32, {0, 10});
  BackwardCall empty = call({.d_gain = false});
  for (const Tensor** tensor : {&empty.d_out, &empty.d_lora, &empty.d_base}) *tensor = &none;
  EXPECT_EQ(run(empty).message, "");
  const Tensor thin(nullptr, ElementType::kFloat32, {6, 0});
  const Tensor no_channels(nullptr, ElementType::kFloat32, {0});
  EXPECT_EQ(
      run({.d_out = &thin, .inner = &thin, .gain = &no_channels, .d_gain = &no_channels}).message,
      "");
  EXPECT_EQ(statistics_of(engine_.get()).launches, 0);
}

// Memory without access rights: touching any byte ends the process.
class InaccessiblePages {
 public:
  explicit InaccessiblePages(std::size_t size)
      : size_(size), data_(mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~InaccessiblePages() { munmap(data_, size_); }
  InaccessiblePages(const InaccessiblePages&) = delete;
  InaccessiblePages& operator=(const InaccessiblePages&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] bool is_mapped() const { return data_ != MAP_FAILED; }

 private:
  std::size_t size_;
  void* data_;
};

class UnreadInnerTest : public BackwardTest {
 protected:
  static constexpr Wanted kNoSum{.d_gain = false};

  void expect_unread(const Tensor& inner) {
    for (const bool compiled : {false, true}) {
      if (compiled) use_compiled_kernels();
      resize(300, 10);
      BackwardCall unread = call(kNoSum);
      unread.inner = &inner;
      ASSERT_EQ(run(unread).message, "") << "compiled " << compiled;
      expect_results(kNoSum);
    }
  }
};

TEST_F(UnreadInnerTest, MemoryOfUnneededInnerIsNotRead) {
  const InaccessiblePages pages(sizeof(float) * 300 * 10);
  ASSERT_TRUE(pages.is_mapped());
  expect_unread({pages.data(), ElementType::kFloat32, {300, 10}});
}

TEST_F(UnreadInnerTest, DescriptionOfUnneededInnerIsNotChecked) {
  Tensor nonsense(nullptr, ElementType::kFloat64, {-3, 2});
  nonsense->dtype = {kDLInt, 3, 5};
  nonsense->device = {kDLMetal, -1};
  expect_unread(nonsense);
}

TEST_F(UnreadInnerTest, OutputsMayOverlapUnneededInner) {
  BackwardCall in_place = call(kNoSum);
  const Tensor shifted(d_lora_.data() + sizeof(float), ElementType::kFloat32, {rows_, cols_});
  in_place.inner = &shifted;
  ASSERT_EQ(run(in_place).message, "");
  expect_results(kNoSum);
}

}  // namespace
}  // namespace dorajit::bindings
