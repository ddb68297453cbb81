// Every function refuses impossible sizes before anything is compiled or allocated.
#include <array>

#include "tests/bindings/c/backward_fixture.h"

namespace dorajit::bindings {
namespace {

struct Size {
  std::int64_t rows;
  std::int64_t cols;
};

constexpr std::array<Size, 4> kAbsurd = {{{(std::int64_t{1} << 61) + 1, 1},
                                          {(std::int64_t{1} << 61) + 1, 3},
                                          {std::int64_t{1} << 32, std::int64_t{1} << 28},
                                          {1, std::int64_t{1} << 46}}};

class AbsurdSizesTest : public CAbiTest {
 protected:
  AbsurdSizesTest() {
    tune_at_first_use();
    engine_ = make_engine();
  }

  void expect_refused(const Outcome& outcome) {
    expect_refusal(outcome, "2^47 bytes");
    EXPECT_EQ(statistics_of(engine_.get()).compilations, 0);
  }

  EngineHandle engine_;
};

TEST_F(AbsurdSizesTest, CallsWithImpossibleSizesAreRefused) {
  HostArray data(ElementType::kFloat32, 8);
  for (const auto& [rows, cols] : kAbsurd) {
    expect_refused(compose(engine_.get(), {data, {rows, cols}}, {data, {rows, cols}},
                           {data, {cols}}, 1, {data, {rows, cols}}));
  }
  // Gaps between rows count towards the size.
  const Tensor apart(data.data(), ElementType::kFloat32, {2, 4}, {std::int64_t{1} << 46, 1});
  expect_refused(compose(engine_.get(), apart, apart, {data, {4}}, 1, apart));
}

TEST_F(AbsurdSizesTest, PreparationOfImpossibleSizesIsRefused) {
  for (const auto& [rows, cols] : kAbsurd) {
    const Tensor matrix(nullptr, ElementType::kFloat32, {rows, cols});
    const Tensor gain(nullptr, ElementType::kFloat32, {cols});
    const Operands tensors = {matrix.get(), matrix.get(), gain.get(), matrix.get()};
    expect_refused(warm_up(engine_.get(), "compose", tensors));
    dorajit_explanation explanation{};
    expect_refused(explain(engine_.get(), "compose", tensors, explanation));
    expect_refused(backward_workspace(matrix, gain).outcome);
  }
}

// A matrix without columns spans no memory, so its rows are not limited; the sums per row are.
TEST_F(AbsurdSizesTest, RowsWithoutColumnsAreLimitedOnlyForSums) {
  constexpr std::int64_t kRows = (std::int64_t{1} << 61) + 1;
  HostArray data(ElementType::kFloat32, 8);
  const Tensor empty(data, {kRows, 1, 0});
  const Tensor channel(data, {1, 1});
  const Tensor d_gain(data.data() + 16, ElementType::kFloat32, {1});
  EXPECT_EQ(compose(engine_.get(), empty, empty, channel, 1, empty).message, "");
  expect_refused(backward(engine_.get(),
                          {.d_out = &empty, .inner = &empty, .gain = &channel, .d_gain = &d_gain}));
}

}  // namespace
}  // namespace dorajit::bindings
