// Every invalid backward call is refused, with the name of the argument and nothing written.
#include "tests/bindings/c/backward_fixture.h"

namespace dorajit::bindings {
namespace {

class RefusedGradientsTest : public BackwardTest {
 protected:
  RefusedGradientsTest() { resize(300, 10); }

  // Runs a valid call after `spoil` has changed one thing in it.
  template <class Spoil>
  void expect_spoilt(const std::string& argument, const std::string& part, const Spoil& spoil,
                     dorajit_status status = DORAJIT_INVALID_ARGUMENT) {
    BackwardCall wrong = call();
    spoil(wrong);
    expect_refused(wrong, argument, part, status);
  }
};

TEST_F(RefusedGradientsTest, MissingOutputsAreRefused) {
  BackwardCall wrong = call();
  wrong.d_lora = wrong.d_base = wrong.d_gain = nullptr;
  expect_refusal(run(wrong), "every output is left out", "at least one");
}

TEST_F(RefusedGradientsTest, MissingInputsAreRefused) {
  expect_spoilt("d_out", "null", [](BackwardCall& call) { call.d_out = nullptr; });
  expect_spoilt("gain", "null", [](BackwardCall& call) { call.gain = nullptr; });
  expect_spoilt("inner", "`d_gain`", [](BackwardCall& call) { call.inner = nullptr; });
  expect_spoilt("engine", "dorajit_engine_create", [this](BackwardCall&) { engine_.reset(); });
}

TEST_F(RefusedGradientsTest, NullMemoryIsRefused) {
  const Tensor* none = tensor(nullptr, ElementType::kFloat32, {rows_, cols_});
  const Tensor* no_gain = tensor(nullptr, ElementType::kFloat32, {cols_});
  expect_spoilt("d_out", "null", [&](BackwardCall& call) { call.d_out = none; });
  expect_spoilt("inner", "null", [&](BackwardCall& call) { call.inner = none; });
  expect_spoilt("d_lora", "null", [&](BackwardCall& call) { call.d_lora = none; });
  expect_spoilt("gain", "null", [&](BackwardCall& call) { call.gain = no_gain; });
  expect_spoilt("d_gain", "null", [&](BackwardCall& call) { call.d_gain = no_gain; });
}

TEST_F(RefusedGradientsTest, SumOfNoTermsWithoutMemoryIsRefused) {
  const Tensor* none = tensor(nullptr, ElementType::kFloat32, {0, cols_});
  const Tensor* no_gain = tensor(nullptr, ElementType::kFloat32, {cols_});
  expect_spoilt("d_gain", "null", [&](BackwardCall& call) {
    call.d_out = call.inner = call.d_lora = call.d_base = none;
    call.d_gain = no_gain;
  });
}

TEST_F(RefusedGradientsTest, SumOfNoTermsOverTheGainIsRefused) {
  const Tensor* none = tensor(nullptr, ElementType::kFloat32, {0, cols_});
  expect_spoilt("d_gain", "`gain`", [&](BackwardCall& call) {
    call.d_out = call.inner = call.d_lora = call.d_base = none;
    call.d_gain = call.gain;
  });
}

TEST_F(RefusedGradientsTest, WrongShapesAreRefused) {
  const Tensor* fewer_rows = tensor(inner_, {rows_ - 1, cols_});
  expect_spoilt("inner", "same shape", [&](BackwardCall& call) { call.inner = fewer_rows; });
  expect_spoilt("d_base", "same shape", [&](BackwardCall& call) { call.d_base = fewer_rows; });
  const Tensor* shorter = tensor(d_gain_, {cols_ - 1});
  expect_spoilt("d_gain", "9 elements", [&](BackwardCall& call) { call.d_gain = shorter; });
  const Tensor* longer = tensor(inner_, {cols_ + 1});
  expect_spoilt("d_gain", "11 elements", [&](BackwardCall& call) { call.d_gain = longer; });
  expect_spoilt("gain", "per column", [&](BackwardCall& call) { call.gain = shorter; });
}

TEST_F(RefusedGradientsTest, WrongStridesAreRefused) {
  const Tensor every_other(inner_.data(), ElementType::kFloat32, {cols_}, {2});
  expect_spoilt("d_gain", ".contiguous()", [&](BackwardCall& call) { call.d_gain = &every_other; });
  const Tensor shared_rows(d_lora_.data(), ElementType::kFloat32, {rows_, cols_}, {cols_ - 1, 1});
  expect_spoilt("d_lora", "row stride", [&](BackwardCall& call) { call.d_lora = &shared_rows; });
}

TEST_F(RefusedGradientsTest, WrongElementTypesAndDevicesAreRefused) {
  const Tensor* doubles = tensor(d_gain_.data(), ElementType::kFloat64, {cols_});
  BackwardCall mixed = call();
  mixed.d_gain = doubles;
  EXPECT_EQ(run(mixed).status, DORAJIT_UNSUPPORTED);
  Tensor integers(d_gain_, {cols_});
  integers->dtype = {kDLInt, 32, 1};
  expect_spoilt(
      "d_gain", "float32", [&](BackwardCall& call) { call.d_gain = &integers; },
      DORAJIT_UNSUPPORTED);
  Tensor elsewhere(inner_, {rows_, cols_});
  elsewhere->device = {kDLCUDA, 0};
  expect_spoilt(
      "inner", "one device", [&](BackwardCall& call) { call.inner = &elsewhere; },
      DORAJIT_WRONG_DEVICE);
}

TEST_F(RefusedGradientsTest, OverlappingOutputsAreRefused) {
  const std::string both = "`d_base`; pass memory of its own";
  expect_spoilt("d_lora", both, [](BackwardCall& call) { call.d_base = call.d_lora; });
  expect_spoilt("d_lora", both, [](BackwardCall& call) { call.d_lora = call.d_base = call.d_out; });
}

TEST_F(RefusedGradientsTest, SumOverAnotherTensorIsRefused) {
  const struct {
    HostArray& array;
    const char* written;
    const char* overlaps;
  } cases[] = {{d_out_, "d_gain", "`d_out`"},
               {inner_, "d_gain", "`inner`"},
               {gain_, "d_gain", "`gain`"},
               {d_lora_, "d_lora", "`d_gain`"},
               {d_base_, "d_base", "`d_gain`"}};
  for (const auto& [array, written, overlaps] : cases) {
    for (const std::size_t bytes_in : {0U, 20U}) {
      const Tensor* within = tensor(array.data() + bytes_in, ElementType::kFloat32, {cols_});
      expect_spoilt(written, std::string(overlaps) + "; pass memory of its own",
                    [&](BackwardCall& call) { call.d_gain = within; });
    }
  }
}

TEST_F(RefusedGradientsTest, OutputsThatPartlyOverlapAnInputAreRefused) {
  const Tensor* shifted = tensor(d_out_.data() + 4, ElementType::kFloat32, {rows_, cols_});
  expect_spoilt("d_base", "`d_out`", [&](BackwardCall& call) { call.d_base = shifted; });
  const Tensor* halves = tensor(inner_.data(), ElementType::kFloat16, {rows_, cols_});
  expect_spoilt("d_lora", "`inner`", [&](BackwardCall& call) { call.d_lora = halves; });
  const Tensor* over_gain = tensor(gain_.data(), ElementType::kFloat32, {rows_, cols_});
  expect_spoilt("d_base", "`gain`", [&](BackwardCall& call) { call.d_base = over_gain; });
}

}  // namespace
}  // namespace dorajit::bindings
