// Every malformed call of compose, compose_inner and compose_residual is refused with a message
// that names the argument, and nothing is written.
#include <cstdint>
#include <functional>
#include <limits>

#include "runtime/base/log.h"
#include "tests/bindings/c/operation_calls.h"

namespace dorajit::bindings {
namespace {

constexpr std::int64_t kRows = 12;
constexpr std::int64_t kCols = 10;
constexpr auto kCount = static_cast<std::size_t>(kRows * kCols);
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max() / 2;

class RefusedTensorsTest : public CAbiTest {
 protected:
  RefusedTensorsTest() { memory_.poison(); }

  // The tensors of a call, of which a test may change or leave out any.
  struct Operands {
    Tensor* lora;
    Tensor* base;
    Tensor* gain;
    Tensor* bias;
    Tensor* out;
    Tensor* inner;
  };
  using Spoil = std::function<void(Operands&)>;

  // Runs a valid call after `spoil` has changed one thing in it.
  Outcome call(const Spoil& spoil, Form form = Form::kCompose) {
    Tensor lora(at(0), ElementType::kFloat32, {kRows, kCols}, {kCols, 1});
    Tensor base(at(1), ElementType::kFloat32, {kRows, kCols}, {kCols, 1});
    Tensor gain(at(2), ElementType::kFloat32, {kCols}, {1});
    Tensor bias(at(3), ElementType::kFloat32, {kCols}, {1});
    Tensor out(at(4), ElementType::kFloat32, {kRows, kCols}, {kCols, 1});
    Tensor inner(at(5), ElementType::kFloat32, {kRows, kCols}, {kCols, 1});
    Operands operands{&lora, &base, &gain, &bias, &out, &inner};
    spoil(operands);
    return compose(engine_.get(), {.form = form,
                                   .lora = operands.lora,
                                   .base = operands.base,
                                   .gain = operands.gain,
                                   .out = operands.out,
                                   .inner = operands.inner,
                                   .bias = operands.bias});
  }

  void expect_refused(const std::string& argument, const std::string& part, const Spoil& spoil,
                      dorajit_status status = DORAJIT_INVALID_ARGUMENT,
                      Form form = Form::kCompose) {
    const std::vector<std::byte> before = memory_.bytes();
    const Outcome outcome = call(spoil, form);
    expect_refusal(outcome, "`" + argument + "`", part, status);
    const char* const names[] = {"compose: ", "compose_inner: ", "compose_residual: "};
    EXPECT_TRUE(outcome.message.starts_with(names[static_cast<int>(form)])) << outcome.message;
    EXPECT_EQ(memory_.bytes(), before) << "written despite: " << outcome.message;
  }

  // A gain or bias of another shape, with matrices of that shape.
  void expect_channels_refused(const Shape& matrix, const Shape& channels, const std::string& part,
                               dorajit_status status = DORAJIT_INVALID_ARGUMENT) {
    SCOPED_TRACE(testing::PrintToString(channels));
    expect_refused("gain", part, [&](Operands& o) { lay_out(o, matrix, channels); }, status);
  }
  static void lay_out(Operands& o, const Shape& matrix, const Shape& channels) {
    for (Tensor* tensor : {o.lora, o.base, o.out, o.inner}) contiguous(*tensor, matrix);
    contiguous(*o.gain, channels);
  }
  static void contiguous(Tensor& tensor, const Shape& shape) {
    tensor.reshape(shape, {});
    tensor->strides = nullptr;
  }

  std::byte* at(int tensor) {
    return memory_.data() + static_cast<std::size_t>(tensor) * 2 * kCount * sizeof(float);
  }

  HostArray memory_{ElementType::kFloat32, 12 * kCount};
  EngineHandle engine_ = make_engine();
};

TEST_F(RefusedTensorsTest, UnchangedCallSucceeds) {
  for (const Form form : {Form::kCompose, Form::kInner, Form::kResidual}) {
    EXPECT_EQ(call([](Operands&) {}, form).message, "");
  }
}

TEST_F(RefusedTensorsTest, NullHandlesAreRefused) {
  expect_refused("lora", "null", [](Operands& o) { o.lora = nullptr; });
  expect_refused("base", "null", [](Operands& o) { o.base = nullptr; });
  expect_refused("gain", "null", [](Operands& o) { o.gain = nullptr; });
  expect_refused("out", "null", [](Operands& o) { o.out = nullptr; });
  expect_refused(
      "inner", "null", [](Operands& o) { o.inner = nullptr; }, DORAJIT_INVALID_ARGUMENT,
      Form::kInner);
  expect_refused("engine", "dorajit_engine_create", [this](Operands&) { engine_.reset(); });
}

TEST_F(RefusedTensorsTest, NullMemoryIsRefused) {
  expect_refused("lora", "null", [](Operands& o) { (*o.lora)->data = nullptr; });
  expect_refused("gain", "null", [](Operands& o) { (*o.gain)->data = nullptr; });
  expect_refused("out", "null", [](Operands& o) {
    (*o.out)->data = nullptr;
    (*o.out)->byte_offset = 64;
  });
}

TEST_F(RefusedTensorsTest, WrongNumbersOfDimensionsAreRefused) {
  expect_refused("base", "0 dimensions", [](Operands& o) { (*o.base)->ndim = 0; });
  expect_refused("base", "-1 dimensions", [](Operands& o) { (*o.base)->ndim = -1; });
  expect_refused("out", "null shape", [](Operands& o) { (*o.out)->shape = nullptr; });
  expect_refused("lora", "negative size", [](Operands& o) { (*o.lora)->shape[0] = -1; });
  expect_refused("gain", "negative size", [](Operands& o) { (*o.gain)->shape[0] = -kCols; });
}

TEST_F(RefusedTensorsTest, ErrorsOfMatricesAreReportedBeforeThoseOfTheGain) {
  const auto spoilt = [](const std::function<void(Operands&)>& spoil) {
    return [spoil](Operands& o) {
      lay_out(o, {3, 4, 2, 5}, {1, 4, 1, 1});
      spoil(o);
    };
  };
  expect_refused("lora", "0 dimensions", spoilt([](Operands& o) { (*o.lora)->ndim = 0; }));
  expect_refused("lora", "negative size", spoilt([](Operands& o) { (*o.lora)->shape[1] = -4; }));
  expect_refused("gain", "negative size", spoilt([](Operands& o) { (*o.gain)->shape[1] = -4; }));
}

TEST_F(RefusedTensorsTest, SizesBeyond64BitsAreRefused) {
  expect_refused("lora", "2^63 elements",
                 [](Operands& o) { contiguous(*o.lora, {kHuge, kHuge, kCols}); });
  expect_refused("base", "2^63 elements", [](Operands& o) { (*o.base)->shape[0] = kHuge; });
  expect_refused("lora", "2^47 bytes", [](Operands& o) {
    for (Tensor* tensor : {o.lora, o.base, o.out}) tensor->reshape({kHuge / 2, 1}, {1, 1});
    (*o.gain)->shape[0] = 1;
  });
  expect_refused("gain", "byte_offset", [](Operands& o) {
    (*o.gain)->byte_offset = std::numeric_limits<std::uint64_t>::max();
  });
}

TEST_F(RefusedTensorsTest, WrongStridesAreRefused) {
  expect_refused("lora", ".contiguous()", [](Operands& o) { (*o.lora)->strides[1] = 2; });
  expect_refused("gain", ".contiguous()", [](Operands& o) { (*o.gain)->strides[0] = 0; });
  expect_refused("base", ".contiguous()", [](Operands& o) { (*o.base)->strides[0] = kCols - 1; });
  expect_refused("base", "row stride of 0", [](Operands& o) { (*o.base)->strides[0] = 0; });
  expect_refused("out", "row stride of -10", [](Operands& o) { (*o.out)->strides[0] = -kCols; });
}

TEST_F(RefusedTensorsTest, DimensionsThatDoNotFlattenAreRefused) {
  for (const Shape& strides :
       {Shape{3 * kCols, kCols, 1}, {kCols, 2 * kCols, 1}, {kCols, kHuge + 1, 1}}) {
    expect_refused("lora", ".contiguous()",
                   [&](Operands& o) { o.lora->reshape({2, 2, kCols}, strides); });
  }
  // Each row is a channel of an image.
  for (const auto& [strides, part] :
       {std::pair<Shape, const char*>{{48, 12, 6, 1}, "dimensions 2 and 3"},
        {{40, 1, 20, 4}, "last dimension"},
        {{50, 10, 5, 1}, "dimensions 0 and 1"}}) {
    expect_refused("lora", part, [&](Operands& o) {
      lay_out(o, {3, 4, 2, 5}, {1, 4, 1, 1});
      o.lora->reshape({3, 4, 2, 5}, strides);
    });
  }
  expect_refused("gain", ".contiguous()", [](Operands& o) {
    lay_out(o, {3, 4, 2, 5}, {1, 4, 1, 1});
    o.gain->reshape({1, 4, 1, 1}, {8, 2, 1, 1});
  });
}

TEST_F(RefusedTensorsTest, DifferentShapesAreRefused) {
  expect_refused("base", "same shape", [](Operands& o) { (*o.base)->shape[0] = kRows - 1; });
  expect_refused("base", "same shape", [](Operands& o) { (*o.base)->shape[1] = kCols - 1; });
  expect_refused("out", "same shape", [](Operands& o) { (*o.out)->shape[1] = kCols - 1; });
  expect_refused(
      "inner", "same shape", [](Operands& o) { (*o.inner)->shape[0] = kRows - 1; },
      DORAJIT_INVALID_ARGUMENT, Form::kInner);
  expect_refused("gain", "per column", [](Operands& o) { (*o.gain)->shape[0] = kCols - 1; });
}

TEST_F(RefusedTensorsTest, GainsOfAnotherNumberOfChannelsAreRefused) {
  // 12 rows are a multiple of all but the last, which must not make them valid.
  for (const std::int64_t wrong : {2, 3, 6, 12, 5}) {
    expect_channels_refused({3, 4, 2, 5}, {1, wrong, 1, 1}, "channels");
    expect_channels_refused({3, 4, 2, 5}, {wrong, 1, 1}, "channels");
  }
  expect_channels_refused({12, 10}, {4, 1}, "channels");
}

TEST_F(RefusedTensorsTest, ChannelsAlongTwoDimensionsAreRefused) {
  expect_channels_refused({12, 10}, {2, 10}, "one dimension", DORAJIT_UNSUPPORTED);
  expect_channels_refused({3, 4, 2, 5}, {3, 4, 1, 1}, "one dimension", DORAJIT_UNSUPPORTED);
  expect_channels_refused({3, 4, 2, 5}, {4, 1, 5}, "one dimension", DORAJIT_UNSUPPORTED);
}

TEST_F(RefusedTensorsTest, GainsOfMoreDimensionsAreRefused) {
  expect_channels_refused({12, 10}, {12, 1, 1}, "more dimensions");
  expect_channels_refused({10}, {10, 1}, "more dimensions");
}

TEST_F(RefusedTensorsTest, BiasesOfAnotherShapeThanTheGainAreRefused) {
  const auto expect_bias_refused = [&](const Shape& matrix, const Shape& gain, const Shape& bias,
                                       const std::string& part, dorajit_status status) {
    expect_refused(
        "bias", part,
        [&](Operands& o) {
          lay_out(o, matrix, gain);
          contiguous(*o.bias, bias);
        },
        status, Form::kResidual);
  };
  expect_bias_refused({12, 10}, {10}, {9}, "", DORAJIT_INVALID_ARGUMENT);
  expect_bias_refused({12, 10}, {10}, {12, 1}, "a different dimension than `gain`",
                      DORAJIT_UNSUPPORTED);
  // Gain and bias must have the same number of channels: one and three do not match.
  expect_bias_refused({2, 3, 5}, {1, 3, 1}, {1, 1, 1}, "", DORAJIT_INVALID_ARGUMENT);
}

// A magnitude stored as [out, 1] over a square matrix is broadcast along the rows, which its caller
// may not intend: it is not refused, but warned of.
TEST_F(RefusedTensorsTest, ColumnVectorOverSquareMatrixWarnsOnce) {
  const auto run = [&](const Shape& matrix, const Shape& gain) {
    return call([&](Operands& o) { lay_out(o, matrix, gain); }).message;
  };
  // Make the kernels first, so that their messages are not captured.
  ASSERT_EQ(run({10, 10}, {10}), "");
  ASSERT_EQ(run({12, 10}, {12, 1}), "");
  set_log_level(LogLevel::kWarning);
  const LogCapture capture;
  ASSERT_EQ(run({10, 10}, {10}), "");
  ASSERT_EQ(run({10, 10}, {1, 10}), "");
  ASSERT_EQ(run({12, 10}, {12, 1}), "");
  ASSERT_EQ(run({1, 10, 10}, {1, 10, 1}), "");
  ASSERT_EQ(run({10, 10}, {1, 1}), "");
  EXPECT_EQ(capture.lines().size(), 0U) << capture.text();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run({10, 10}, {10, 1}), "");
  ASSERT_EQ(capture.lines().size(), 1U) << capture.text();
  EXPECT_EQ(capture.lines()[0].level, DORAJIT_LOG_WARNING);
  EXPECT_NE(capture.lines()[0].message.find("`gain` is [10, 1]"), std::string::npos);
  set_log_level(LogLevel::kOff);
}

TEST_F(RefusedTensorsTest, WrongElementTypesAreRefused) {
  const auto expect_unsupported = [this](const std::string& argument, DLDataType type) {
    expect_refused(
        argument, "float32",
        [&](Operands& o) { (*(argument == "lora" ? o.lora : o.gain))->dtype = type; },
        DORAJIT_UNSUPPORTED);
  };
  expect_unsupported("lora", {kDLInt, 32, 1});
  expect_unsupported("gain", {kDLFloat, 8, 1});
  expect_unsupported("lora", {kDLFloat, 32, 4});
  expect_unsupported("lora", {kDLBfloat, 32, 1});
  expect_unsupported("gain", {kDLComplex, 64, 1});
  expect_unsupported("gain", {255, 255, 0});
  expect_refusal(call([](Operands& o) { (*o.gain)->dtype.bits = 64; }), "f64", "",
                 DORAJIT_UNSUPPORTED);
}

TEST_F(RefusedTensorsTest, MisalignedMemoryIsRefused) {
  expect_refused("base", "aligned", [](Operands& o) { (*o.base)->byte_offset = 2; });
}

TEST_F(RefusedTensorsTest, WrongDevicesAreRefused) {
  expect_refused(
      "base", "one device", [](Operands& o) { (*o.base)->device = {kDLCUDA, 0}; },
      DORAJIT_WRONG_DEVICE);
  expect_refused(
      "out", "CUDA", [](Operands& o) { (*o.out)->device = {kDLMetal, 0}; }, DORAJIT_UNSUPPORTED);
}

TEST_F(RefusedTensorsTest, PartialOverlapIsRefused) {
  expect_refused("out", "`lora`", [this](Operands& o) { (*o.out)->data = at(0) + sizeof(float); });
  expect_refused("out", "`base`", [this](Operands& o) {
    (*o.out)->data = at(1) + kCount * sizeof(float) - sizeof(float);
  });
  expect_refused("out", "`gain`", [this](Operands& o) { (*o.out)->data = at(2); });
  expect_refused("out", "`lora`", [this](Operands& o) {
    (*o.out)->data = at(0);
    (*o.out)->strides[0] = kCols + 1;
  });
  expect_refused("out", "`base`", [this](Operands& o) {
    (*o.out)->data = at(1);
    (*o.out)->dtype.bits = 16;
  });
  const auto expect_inner_refused = [this](const std::string& argument, const Spoil& spoil) {
    expect_refused(argument, "", spoil, DORAJIT_INVALID_ARGUMENT, Form::kInner);
  };
  expect_inner_refused("out", [this](Operands& o) { (*o.inner)->data = at(4); });
  expect_inner_refused("out", [this](Operands& o) { (*o.inner)->data = (*o.out)->data = at(0); });
  expect_inner_refused("inner", [this](Operands& o) { (*o.inner)->data = at(4) + 4; });
  expect_inner_refused("inner", [this](Operands& o) { (*o.inner)->data = at(1) + 4; });
}

}  // namespace
}  // namespace dorajit::bindings
