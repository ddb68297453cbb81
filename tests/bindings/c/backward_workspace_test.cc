// The size of a sum's workspace, and refused workspaces.
#include <algorithm>
#include <format>
#include <limits>
#include <vector>

#include "tests/bindings/c/backward_fixture.h"

namespace dorajit::bindings {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

std::int64_t bytes_for(const Shape& d_out, const Shape& gain,
                       ElementType type = ElementType::kFloat32) {
  const WorkspaceAnswer answer =
      backward_workspace(Tensor(nullptr, type, d_out), Tensor(nullptr, type, gain));
  EXPECT_EQ(answer.outcome.message, "");
  return answer.bytes;
}

class BackwardWorkspaceTest : public BackwardTest {
 protected:
  static void expect_unanswered(const Tensor* d_out, const Tensor* gain, const std::string& part) {
    std::int64_t bytes = 77;
    expect_refusal(outcome_of([&](dorajit_error** error) {
                     return dorajit_backward_workspace(d_out != nullptr ? d_out->get() : nullptr,
                                                       gain != nullptr ? gain->get() : nullptr,
                                                       &bytes, error);
                   }),
                   part);
    EXPECT_EQ(bytes, 77);
  }
};

TEST_F(BackwardWorkspaceTest, UpTo256RowsNeedNoWorkspace) {
  for (const std::int64_t rows : {0, 1, 255, 256}) {
    EXPECT_EQ(bytes_for({rows, 4096}, {4096}), 0);
    EXPECT_EQ(bytes_for({rows, 1}, {1}, ElementType::kFloat64), 0);
  }
  EXPECT_EQ(bytes_for({16, 16, 64}, {1, 1, 64}), 0);
}

TEST_F(BackwardWorkspaceTest, PerColumnSumsNeedOnePartialSumPer256Rows) {
  EXPECT_EQ(bytes_for({257, 4096}, {4096}), 2 * 4096 * 4);
  EXPECT_EQ(bytes_for({257, 4096}, {4096}, ElementType::kBfloat16), 2 * 4096 * 4);
  EXPECT_EQ(bytes_for({257, 4096}, {4096}, ElementType::kFloat64), 2 * 4096 * 8);
  EXPECT_EQ(bytes_for({512, 3}, {3}), 2 * 3 * 4);
  EXPECT_EQ(bytes_for({513, 3}, {3}), 3 * 3 * 4);
  EXPECT_EQ(bytes_for({16, 2048, 1024}, {1024}), 128 * 1024 * 4);
}

TEST_F(BackwardWorkspaceTest, PerRowSumsNeedOnePartialSumPer4096ColumnsOrPerSamplesOf256Terms) {
  EXPECT_EQ(bytes_for({2, 3, 1, 1}, {1, 3, 1, 1}), 0);
  EXPECT_EQ(bytes_for({256, 3, 1, 1}, {1, 3, 1, 1}), 0);
  EXPECT_EQ(bytes_for({257, 3, 1, 1}, {1, 3, 1, 1}), 2 * 3 * 4);
  // 256 / 49 samples, as a power of two: 8.
  EXPECT_EQ(bytes_for({8, 512, 7, 7}, {512, 1, 1}), 0);
  EXPECT_EQ(bytes_for({32, 512, 7, 7}, {512, 1, 1}), 4 * 512 * 4);
  EXPECT_EQ(bytes_for({1, 3, 64, 64}, {1, 3, 1, 1}), 0);
  EXPECT_EQ(bytes_for({2, 3, 16, 16}, {1, 3, 1, 1}), 2 * 3 * 4);
  EXPECT_EQ(bytes_for({5, 3, 4097}, {3, 1}), 10 * 3 * 4);
  EXPECT_EQ(bytes_for({5, 3, 4097}, {3, 1}, ElementType::kFloat64), 10 * 3 * 8);
}

TEST_F(BackwardWorkspaceTest, WrongShapesAreRefused) {
  const Tensor matrix(nullptr, ElementType::kFloat32, {300, 4});
  const Tensor gain(nullptr, ElementType::kFloat32, {4});
  expect_unanswered(nullptr, &gain, "`d_out`");
  expect_unanswered(&matrix, nullptr, "`gain`");
  const Tensor other(nullptr, ElementType::kFloat32, {3});
  expect_unanswered(&matrix, &other, "4 columns");
  const Tensor samples(nullptr, ElementType::kFloat32, {299, 1});
  expect_unanswered(&matrix, &samples, "299 channels");
  EXPECT_EQ(dorajit_backward_workspace(matrix.get(), gain.get(), nullptr, nullptr),
            DORAJIT_INVALID_ARGUMENT);
}

TEST_F(BackwardWorkspaceTest, SizesNearTheLimitDoNotOverflow) {
  const Tensor one(nullptr, ElementType::kFloat32, {1});
  const Tensor tall(nullptr, ElementType::kFloat32, {kHuge, 1});
  expect_unanswered(&tall, &one, "2^47 bytes");
  constexpr std::int64_t kMaxRows = std::int64_t{1} << 45;
  const Tensor most(nullptr, ElementType::kFloat32, {kMaxRows, 1});
  EXPECT_EQ(backward_workspace(most, one).bytes, kMaxRows / 256 * 4);
  const Tensor more(nullptr, ElementType::kFloat32, {kMaxRows + 1, 1});
  expect_unanswered(&more, &one, "2^47 bytes");
  const Tensor wide_gain(nullptr, ElementType::kFloat32, {kHuge / 2});
  const Tensor matrix(nullptr, ElementType::kFloat32, {1 << 30, 4});
  expect_unanswered(&matrix, &wide_gain, "`gain`");
  const Tensor beyond(nullptr, ElementType::kFloat32, {kHuge, 2});
  const Tensor two(nullptr, ElementType::kFloat32, {2});
  expect_unanswered(&beyond, &two, "2^63");
}

TEST_F(BackwardWorkspaceTest, TooSmallWorkspaceIsRefused) {
  resize(300, 10);
  ASSERT_EQ(workspace_.size(), 80U);
  BackwardCall wrong = call();
  wrong.workspace = nullptr;
  expect_refused(wrong, "workspace", "0 bytes but 80 are needed");
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{79}, std::int64_t{-1}, -kHuge}) {
    wrong = call();
    wrong.workspace_bytes = bytes;
    expect_refused(
        wrong, "workspace",
        std::format("{} bytes but 80 are needed; ask dorajit_operation_workspace", bytes));
  }
  workspace_.resize(96);
  wrong = call();
  wrong.workspace = workspace_.data() + 8;
  expect_refused(wrong, "workspace", "aligned to 16 bytes");
}

TEST_F(BackwardWorkspaceTest, OverlappingWorkspaceIsRefused) {
  resize(300, 16);  // each array is large enough and aligned, so only the overlap is wrong
  const BackwardCall good = call();
  struct Case {
    HostArray& array;
    std::string name;
  };
  for (const Case& one : {Case{d_out_, "d_out"}, Case{inner_, "inner"}, Case{d_lora_, "d_lora"},
                          Case{d_base_, "d_base"}}) {
    BackwardCall wrong = good;
    wrong.workspace = one.array.data();
    expect_refused(wrong, one.name, "`workspace`");
    wrong.workspace = one.array.data() + one.array.bytes().size() - 16;
    expect_refused(wrong, one.name, "`workspace`");
  }
  for (const Case& one : {Case{gain_, "gain"}, Case{d_gain_, "d_gain"}}) {
    BackwardCall wrong = good;
    wrong.workspace = one.array.data() + 16;
    expect_refused(wrong, one.name, "`workspace`");
  }
}

TEST_F(BackwardWorkspaceTest, OnlyTheNeededBytesAreWritten) {
  resize(300, 10);
  workspace_.resize(160, std::byte{0xA5});
  BackwardCall larger = call();
  larger.workspace_bytes = kHuge;
  ASSERT_EQ(run(larger).message, "");
  expect_results();
  EXPECT_TRUE(std::all_of(workspace_.begin() + 80, workspace_.end(),
                          [](std::byte byte) { return byte == std::byte{0xA5}; }));
}

TEST_F(BackwardWorkspaceTest, UnneededWorkspaceIsNotWritten) {
  std::vector<std::byte> needless(64, std::byte{0xA5});
  for (const Wanted& wanted : {Wanted{}, Wanted{.d_gain = false}}) {
    resize(256, 10);
    BackwardCall generous = call(wanted);
    generous.workspace = needless.data();
    generous.workspace_bytes = std::ssize(needless);
    ASSERT_EQ(run(generous).message, "");
    expect_results(wanted);
    EXPECT_EQ(needless, std::vector<std::byte>(64, std::byte{0xA5}));
  }
}

}  // namespace
}  // namespace dorajit::bindings
