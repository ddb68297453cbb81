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
    set_variable("DORAJIT_CXX", std::nullopt);
    set_variable("DORAJIT_TUNE", "first_use");
    set_variable("DORAJIT_TUNE_SECONDS", "0.1");
    engine_ = make_engine();
  }

  void expect_refused(const Outcome& outcome) {
    EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT);
    EXPECT_NE(outcome.message.find("2^47 bytes"), std::string::npos) << outcome.message;
    EXPECT_EQ(statistics_of(engine_.get()).compilations, 0);
  }

  EngineHandle engine_;
};

TEST_F(AbsurdSizesTest, WarmupOfImpossibleSizesIsRefused) {
  for (const auto& [rows, cols] : kAbsurd) {
    const Tensor matrix(nullptr, ElementType::kFloat32, {rows, cols});
    const Tensor gain(nullptr, ElementType::kFloat32, {cols});
    const std::array tensors = {matrix.get(), matrix.get(), gain.get(), matrix.get()};
    dorajit_error* error = nullptr;
    const dorajit_status status = dorajit_warmup(engine_.get(), dorajit_operation_find("compose"),
                                                 tensors.data(), 4, nullptr, 0, &error);
    expect_refused(take(status, error));
  }
}

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

TEST_F(AbsurdSizesTest, ExplainAndWorkspaceOfImpossibleSizesAreRefused) {
  for (const auto& [rows, cols] : kAbsurd) {
    const Tensor matrix(nullptr, ElementType::kFloat32, {rows, cols});
    const Tensor gain(nullptr, ElementType::kFloat32, {cols});
    const std::array tensors = {matrix.get(), matrix.get(), gain.get(), matrix.get()};
    dorajit_explanation explanation{};
    explanation.struct_size = sizeof explanation;
    dorajit_error* error = nullptr;
    dorajit_status status = dorajit_explain(engine_.get(), dorajit_operation_find("compose"),
                                            tensors.data(), 4, nullptr, 0, &explanation, &error);
    expect_refused(take(status, error));
    std::int64_t bytes = 0;
    status = dorajit_backward_workspace(matrix.get(), gain.get(), &bytes, &error);
    expect_refused(take(status, error));
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
  dorajit_error* error = nullptr;
  const dorajit_status status =
      dorajit_backward(engine_.get(), nullptr, empty.get(), empty.get(), channel.get(), 1, nullptr,
                       nullptr, d_gain.get(), nullptr, 0, &error);
  expect_refused(take(status, error));
}

}  // namespace
}  // namespace dorajit::bindings
