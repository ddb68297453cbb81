// The calls of weight_norm that the C ABI refuses, and its results for non-finite values.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <format>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernel_templates/registry.h"
#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

constexpr std::int64_t kRows = 5;
constexpr std::int64_t kColumns = 600;  // several spans of 256, so that sums may have parts
constexpr std::int64_t kRank = 3;
constexpr double kScale = 0.5;

class WeightNormTest : public CAbiTest {
 protected:
  WeightNormTest() {
    weight_.fill(0.25, 0.125, 11);
    a_.fill(-1, 0.25, 7);
    b_.fill(0.5, 0.125, 5);
    norm_.poison();
  }

  struct Call {
    Tensor weight;
    Tensor a;
    Tensor b;
    Tensor norm;
    std::int64_t workspace_bytes;
  };

  // Runs a valid call after `spoil` may have changed one thing in it.
  Outcome run(const std::function<void(Call&)>& spoil = [](Call&) {}) {
    Call call{.weight = {weight_.data(), weight_.type(), {kRows, kColumns}, {kColumns, 1}},
              .a = {a_.data(), a_.type(), {kRank, kColumns}, {kColumns, 1}},
              .b = {b_.data(), b_.type(), {kRows, kRank}, {kRank, 1}},
              .norm = {norm_.data(), norm_.type(), {kRows}, {1}},
              .workspace_bytes = 0};
    const std::array<const DLTensor*, 8> good = {call.weight.get(), call.a.get(),    call.b.get(),
                                                 nullptr,           call.norm.get(), nullptr,
                                                 nullptr,           nullptr};
    EXPECT_EQ(dorajit_operation_workspace(operation_, good.data(), good.size(),
                                          &call.workspace_bytes, nullptr),
              DORAJIT_OK);
    EXPECT_GT(call.workspace_bytes, 0);
    workspace_.resize(static_cast<std::size_t>(call.workspace_bytes));
    spoil(call);
    return launch(good, workspace_.data(), call.workspace_bytes);
  }

  Outcome launch(const std::array<const DLTensor*, 8>& tensors, void* workspace = nullptr,
                 std::int64_t bytes = 0) {
    return outcome_of([&](dorajit_error** error) {
      return dorajit_launch(engine_.get(), nullptr, operation_, tensors.data(), 8, &kScale, 1,
                            workspace, bytes, error);
    });
  }

  void expect_refused(const std::string& argument, const std::function<void(Call&)>& spoil) {
    const std::vector<std::byte> before = norm_.bytes();
    const Outcome outcome = run(spoil);
    expect_refusal(outcome, "weight_norm: ", "`" + argument + "`");
    EXPECT_EQ(norm_.bytes(), before) << "written despite: " << outcome.message;
  }

  const dorajit_operation* operation_ = dorajit_operation_find("weight_norm");
  HostArray weight_{ElementType::kFloat32, kRows* kColumns};
  HostArray a_{ElementType::kFloat32, kRank* kColumns};
  HostArray b_{ElementType::kFloat32, kRows* kRank};
  HostArray norm_{ElementType::kFloat32, kRows};
  std::vector<std::byte> workspace_;
  EngineHandle engine_ = make_engine();
};

TEST_F(WeightNormTest, NullMemoryIsRefusedByName) {
  expect_refused("weight", [](Call& call) { call.weight->data = nullptr; });
  expect_refused("lora_A", [](Call& call) { call.a->data = nullptr; });
  expect_refused("lora_B", [](Call& call) { call.b->data = nullptr; });
  expect_refused("norm", [](Call& call) { call.norm->data = nullptr; });
  expect_refused("workspace", [](Call& call) { --call.workspace_bytes; });
}

TEST_F(WeightNormTest, MismatchedSizesAreRefused) {
  expect_refused("lora_A", [](Call& call) { --call.a->shape[1]; });
  expect_refused("lora_B", [](Call& call) { --call.b->shape[1]; });
  expect_refused("norm", [](Call& call) { --call.norm->shape[0]; });
}

TEST_F(WeightNormTest, NonFiniteElementAffectsOnlyItsRow) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  weight_.set(1 * kColumns + 599, kNaN);
  weight_.set(2 * kColumns + 300, -kInfinity);
  b_.set(4 * kRank + 2, kInfinity);
  ASSERT_EQ(run().message, "");
  for (const std::size_t row : {1U, 2U, 4U}) EXPECT_FALSE(std::isfinite(norm_.get(row))) << row;
  for (const std::size_t row : {0U, 3U}) EXPECT_TRUE(std::isfinite(norm_.get(row))) << row;
}

TEST_F(WeightNormTest, MagnitudeMadeFromTheDivisorHasAGainOfExactlyOne) {
  using enum ElementType;
  constexpr std::array kNorms = {0.0, 1e-8, 3e-7, 1e-3};
  constexpr std::int64_t kCount = kNorms.size();
  for (const ElementType type : {kFloat16, kBfloat16, kFloat32, kFloat64}) {
    const ElementType wide = type == kFloat64 ? kFloat64 : kFloat32;
    HostArray weight(wide, kCount);
    HostArray zeros(wide, kCount);
    HostArray magnitude(type, kCount);
    HostArray gain(wide, kCount);
    HostArray divisor(wide, kCount);
    for (std::size_t row = 0; row < kNorms.size(); ++row) weight.set(row, kNorms[row]);
    const Tensor w(weight, {kCount, 1});
    const Tensor a(zeros, {1, 1});
    const Tensor b(zeros, {kCount, 1});
    const Tensor m(magnitude, {kCount});
    const Tensor g(gain, {kCount});
    const Tensor d(divisor, {kCount});
    const std::array<const DLTensor*, 8> tensors = {w.get(), a.get(), b.get(), m.get(),
                                                    nullptr, nullptr, g.get(), d.get()};
    ASSERT_EQ(launch(tensors).message, "");
    for (std::size_t row = 0; row < kNorms.size(); ++row) magnitude.set(row, divisor.get(row));
    ASSERT_EQ(launch(tensors).message, "");
    const double least = type == kFloat16 ? 1e-6 : 1e-12;
    for (std::size_t row = 0; row < kNorms.size(); ++row) {
      const std::string of = std::format("{} {}", kernels::name(type), kNorms[row]);
      EXPECT_EQ(gain.get(row), 1) << of;
      EXPECT_NEAR(divisor.get(row) / std::max(kNorms[row], least), 1, 0.02) << of;
    }
  }
}

TEST_F(WeightNormTest, NoRowsNeedNoMemory) {
  const Tensor none(nullptr, ElementType::kFloat32, {0, kColumns});
  const Tensor a(a_, {kRank, kColumns});
  const Tensor b(nullptr, ElementType::kFloat32, {0, kRank});
  const Tensor norm(nullptr, ElementType::kFloat32, {0});
  const std::array<const DLTensor*, 8> tensors = {none.get(), a.get(), b.get(), nullptr,
                                                  norm.get(), nullptr, nullptr, nullptr};
  EXPECT_EQ(launch(tensors).message, "");
}

}  // namespace
}  // namespace dorajit::bindings
