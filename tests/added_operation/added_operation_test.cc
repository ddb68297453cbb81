// An operation from another folder, defined only by its formula and its entry in the table: it is
// described, compiled, tuned, stored and called like those of the library.
#include <gtest/gtest.h>

#include <dorajit/dorajit.hpp>
#include <string>
#include <vector>

#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

constexpr double kScale = 0.75;
constexpr std::int64_t kRows = 37;
constexpr std::int64_t kCols = 129;

class AddedOperation : public CAbiTest {
 protected:
  AddedOperation() {
    x_.fill(-3, 0.25, 31);
    residual_.fill(2, -0.5, 17);
    gain_.fill(0.5, 0.125, 11);
  }

  // Calls it and compares every element with the expression.
  void run(dorajit::Engine& engine) {
    out_.poison();
    const TensorRef out(out_.data(), {kRows, kCols}, type_);
    engine.launch(nullptr, "scaled_residual",
                  {ConstTensorRef(x_.data(), {kRows, kCols}, type_),
                   ConstTensorRef(residual_.data(), {kRows, kCols}, type_),
                   ConstTensorRef(gain_.data(), {kCols}, type_), out},
                  {kScale});
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const auto scaled = static_cast<float>(kScale) * static_cast<float>(x_.get(i));
      const auto expected = static_cast<float>(gain_.get(i % kCols)) * scaled;
      ASSERT_EQ(out_.get(i), expected + static_cast<float>(residual_.get(i))) << i;
    }
  }

  static Options options(const std::string& cache_dir) {
    Options options;
    options.cache_dir = cache_dir;
    return options;
  }

  const dorajit::ElementType type_ = dorajit::ElementType::kFloat32;
  HostArray x_{ElementType::kFloat32, kRows* kCols};
  HostArray residual_{ElementType::kFloat32, kRows* kCols};
  HostArray gain_{ElementType::kFloat32, kCols};
  HostArray out_{ElementType::kFloat32, kRows* kCols};
};

TEST_F(AddedOperation, DescriptionMatchesItsDeclaration) {
  const Operation operation("scaled_residual");
  EXPECT_STREQ(operation.documentation(), "out = gain * (scale * x) + residual");
  EXPECT_EQ(operation.num_scalars(), 1);
  const auto operands = operation.operands();
  ASSERT_EQ(operands.size(), 4U);
  EXPECT_STREQ(operands[1].name, "residual");
  EXPECT_STREQ(operands[2].dimensions, "channels");
  EXPECT_EQ(operands[1].is_per_channel, 0);
  EXPECT_EQ(operands[2].is_per_channel, 1);
  EXPECT_EQ(operands[3].is_output, 1);
  EXPECT_EQ(Operation::all().back().get(), operation.get());
}

TEST_F(AddedOperation, DescriptionListsAllScalars) {
  const std::vector<const char*> names = Operation("weighted_sum").scalars();
  ASSERT_EQ(names.size(), 2U);
  EXPECT_STREQ(names[0], "alpha");
  EXPECT_STREQ(names[1], "beta");
}

TEST_F(AddedOperation, EachScalarAffectsTheResult) {
  dorajit::Engine engine(options(""));
  out_.poison();
  engine.launch(nullptr, "weighted_sum",
                {ConstTensorRef(x_.data(), {kRows, kCols}, type_),
                 ConstTensorRef(residual_.data(), {kRows, kCols}, type_),
                 TensorRef(out_.data(), {kRows, kCols}, type_)},
                {0.75, -0.5});
  for (std::size_t i = 0; i < out_.size(); ++i) {
    const auto first = 0.75F * static_cast<float>(x_.get(i));
    ASSERT_EQ(out_.get(i), first + -0.5F * static_cast<float>(residual_.get(i))) << i;
  }
}

TEST_F(AddedOperation, WithoutACompilerRunsItsBuiltinKernel) {
  dorajit::Engine engine(options(""));
  run(engine);
  EXPECT_EQ(engine.statistics().builtin_kernels, 1);
}

TEST_F(AddedOperation, FirstCallCompilesTunesAndStores) {
  set_variable("DORAJIT_CXX", std::nullopt);
  set_variable("DORAJIT_TUNE", "first_use");
  set_variable("DORAJIT_TUNE_SECONDS", "0.1");
  {
    dorajit::Engine engine(options(cache_dir()));
    run(engine);
    EXPECT_GT(engine.statistics().compilations, 0);
    EXPECT_EQ(engine.statistics().tuned_problems, 1);
  }
  dorajit::Engine engine(options(cache_dir()));
  run(engine);
  EXPECT_EQ(engine.statistics().compilations, 0);
  EXPECT_EQ(engine.statistics().tuned_problems, 0);
  const ConstTensorRef matrix(x_.data(), {kRows, kCols}, type_);
  const auto found = engine.explain(
      "scaled_residual", {matrix, matrix, ConstTensorRef(gain_.data(), {kCols}, type_), matrix});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->problem.substr(0, 15), "scaled_residual");
  EXPECT_EQ(found->source, "user database");
}

TEST_F(AddedOperation, InvalidCallsAreRefused) {
  dorajit::Engine engine(options(""));
  const ConstTensorRef matrix(x_.data(), {kRows, kCols}, type_);
  const ConstTensorRef narrow(gain_.data(), {kCols - 1}, type_);
  try {
    engine.launch(nullptr, "scaled_residual", {matrix, matrix, narrow, matrix}, {kScale});
    FAIL();
  } catch (const dorajit::Error& error) {
    EXPECT_NE(std::string(error.what()).find("scaled_residual: argument `gain`"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(engine.launch(nullptr, "scaled_residual", {matrix, matrix}, {kScale}),
               dorajit::Error);
  EXPECT_THROW(engine.launch(nullptr, "scaled_residual", {matrix, matrix, matrix, matrix}, {}),
               dorajit::Error);
  EXPECT_THROW(Operation("scaled_residuals"), dorajit::Error);
}

}  // namespace
}  // namespace dorajit::bindings
