// The results of dorajit_compose, dorajit_compose_inner and dorajit_compose_residual on the CPU,
// for every layout that they take.
#include <cmath>
#include <limits>
#include <string>

#include "tests/bindings/c/operation_calls.h"

namespace dorajit::bindings {
namespace {

constexpr std::size_t kCount = 120;

// A function, and the tensors that its calls pass.
struct Function {
  const char* name;
  Form form;
  bool has_inner = false;
  bool has_bias = false;
};

// GoogleTest finds it by this name. NOLINTNEXTLINE(readability-identifier-naming)
void PrintTo(const Function& one, std::ostream* out) { *out << one.name; }

// Which element of the gain an element of the matrices is multiplied by.
struct Channels {
  std::size_t length = 1;  // consecutive elements of one channel
  std::size_t count = 10;

  [[nodiscard]] std::size_t of(std::size_t i) const { return i / length % count; }
};

struct Layout {
  Shape matrix = {12, 10};
  Shape gain = {10};
  Channels channels{};
};

constexpr Channels kPerImage{.length = 10, .count = 4};

class ComposeTest : public CAbiTest, public testing::WithParamInterface<Function> {
 protected:
  ComposeTest() { fill(); }

  void fill() {
    lora_.fill(-2, 0.25, 17);
    base_.fill(1, -0.125, 23);
    gain_.fill(0.984375, 0.0078125, 7);
    bias_.fill(-0.5, 0.375, 5);
  }

  // A call over the arrays, which a test may change before it runs it.
  struct Call {
    Call(ComposeTest& test, const Layout& layout)
        : lora(test.lora_, layout.matrix),
          base(test.base_, layout.matrix),
          gain(test.gain_, layout.gain),
          bias(test.bias_, layout.gain),
          out(test.out_, layout.matrix),
          inner(test.inner_, layout.matrix) {}

    Tensor lora;
    Tensor base;
    Tensor gain;
    Tensor bias;
    Tensor out;
    Tensor inner;
    double scale = 0.75;
  };
  Call call(const Layout& layout = {}) {
    out_.poison();
    inner_.poison();
    return {*this, layout};
  }

  [[nodiscard]] bool has_inner() const { return GetParam().has_inner; }

  Outcome run(const Call& call) {
    return compose(engine_.get(), {.form = GetParam().form,
                                   .lora = &call.lora,
                                   .base = &call.base,
                                   .gain = &call.gain,
                                   .scale = call.scale,
                                   .out = &call.out,
                                   .inner = has_inner() ? &call.inner : nullptr,
                                   .bias = GetParam().has_bias ? &call.bias : nullptr});
  }

  // The plain expressions, each operation rounded once to T.
  template <class T>
  [[nodiscard]] T plain_base(std::size_t i, std::size_t channel) const {
    const auto base = static_cast<T>(base_.get(i));
    return GetParam().has_bias ? base - static_cast<T>(bias_.get(channel)) : base;
  }
  template <class T = float>
  [[nodiscard]] T plain_out(std::size_t i, std::size_t channel, double scale = 0.75) const {
    const T composed =
        plain_compose<T>(lora_.get(i), plain_base<T>(i, channel), gain_.get(channel), scale);
    return GetParam().form == Form::kResidual ? static_cast<T>(base_.get(i)) + composed : composed;
  }
  template <class T = float>
  [[nodiscard]] T plain_inner(std::size_t i, std::size_t channel, double scale = 0.75) const {
    const T scaled_lora = static_cast<T>(scale) * static_cast<T>(lora_.get(i));
    return scaled_lora + plain_base<T>(i, channel);
  }

  // The first `count` elements, rounded to the types of the arrays.
  void expect_right(const HostArray& out, const HostArray& inner, const Channels& channels = {},
                    std::size_t count = kCount) const {
    HostArray want_out(out.type(), count);
    HostArray want_inner(inner.type(), count);
    for (std::size_t i = 0; i < count; ++i) {
      want_out.set(i, plain_out(i, channels.of(i)));
      ASSERT_EQ(out.get(i), want_out.get(i)) << "element " << i;
      if (!has_inner()) continue;
      want_inner.set(i, plain_inner(i, channels.of(i)));
      ASSERT_EQ(inner.get(i), want_inner.get(i)) << "element " << i;
    }
  }
  void expect_right(const Channels& channels = {}, std::size_t count = kCount) const {
    expect_right(out_, inner_, channels, count);
  }

  HostArray lora_{ElementType::kFloat32, kCount};
  HostArray base_{ElementType::kFloat32, kCount};
  HostArray gain_{ElementType::kFloat32, kCount};
  HostArray bias_{ElementType::kFloat32, kCount};
  HostArray out_{ElementType::kFloat32, kCount};
  HostArray inner_{ElementType::kFloat32, kCount};
  EngineHandle engine_ = make_engine();
};

constexpr Function kFunctions[] = {
    {"Compose", Form::kCompose},
    {"ComposeInner", Form::kInner, true},
    {"ComposeResidual", Form::kResidual},
    {"ComposeResidualWithBias", Form::kResidual, false, true},
    {"ComposeResidualWithInner", Form::kResidual, true},
    {"ComposeResidualWithBiasAndInner", Form::kResidual, true, true},
};
INSTANTIATE_TEST_SUITE_P(Functions, ComposeTest, testing::ValuesIn(kFunctions),
                         [](const auto& info) { return info.param.name; });

TEST_P(ComposeTest, EqualsThePlainExpressionForEveryShape) {
  // Their products and sums are rounded.
  lora_.set(3, std::nextafter(1.0F, 2.0F));
  base_.set(3, 1.0F / 3);
  for (const bool is_compiled : {false, true}) {
    if (is_compiled && GetParam().form != Form::kCompose) break;  // compiling takes long
    if (is_compiled) {
      set_variable("DORAJIT_CXX", std::nullopt);
      engine_ = make_engine();
    }
    std::int64_t launches = 0;
    for (const Layout& layout : std::vector<Layout>{{{12, 10}, {10}, {1, 10}},
                                                    {{3, 4, 2, 5}, {1, 1, 1, 5}, {1, 5}},
                                                    {{3, 40}, {1, 1, 1, 40}, {1, 40}},
                                                    {{3, 4, 2, 5}, {1, 4, 1, 1}, kPerImage},
                                                    {{3, 4, 2, 5}, {4, 1, 1}, kPerImage},
                                                    {{3, 4, 10}, {4, 1}, kPerImage},
                                                    {{12, 10}, {12, 1}, {10, 12}},
                                                    {{3, 4, 2, 5}, {3, 1, 1, 1}, {40, 3}},
                                                    {{3, 40, 1, 1}, {1, 40, 1, 1}, {1, 40}},
                                                    {{3, 4, 2, 5}, {1, 1, 1, 1}, {1, 1}},
                                                    {{12, 10}, {1, 1}, {1, 1}},
                                                    {{10, 10}, {10, 1}, {10, 10}},
                                                    {{120, 1}, {1, 1}, {1, 1}},
                                                    {{120, 1}, {1}, {1, 1}}}) {
      SCOPED_TRACE(testing::PrintToString(layout.gain));
      ASSERT_EQ(run(call(layout)).message, "");
      expect_right(layout.channels, layout.matrix == Shape{10, 10} ? 100 : kCount);
      EXPECT_EQ(statistics_of(engine_.get()).launches, ++launches);
    }
  }
}

TEST_P(ComposeTest, LeadingDimensionsAreRows) {
  Call call = this->call();
  call.lora.reshape({2, 1, 6, 10}, {60, 60, 10, 1});
  call.base.reshape({3, 4, 10}, {40, 10, 1});
  call.gain.reshape({1, 1, 10}, {10, 10, 1});
  ASSERT_EQ(run(call).message, "");
  expect_right();
}

TEST_P(ComposeTest, OneDimensionIsOneRow) {
  ASSERT_EQ(run(call({.matrix = {10}})).message, "");
  expect_right({}, 10);
}

TEST_P(ComposeTest, StridedRowsAreAccepted) {
  constexpr std::size_t kStride = 13;
  for (const auto& [strides, layout] :
       {std::pair<Shape, Layout>{{78, 13, 1}, {.matrix = {2, 6, 10}}},
        {{52, 13, 5, 1}, {{3, 4, 2, 5}, {4, 1, 1}, kPerImage}}}) {
    HostArray out(ElementType::kFloat32, 12 * kStride);
    HostArray inner(ElementType::kFloat32, 12 * kStride);
    Call call = this->call(layout);
    for (const auto& [array, tensor] : {std::pair{&out, &call.out}, {&inner, &call.inner}}) {
      array->poison();
      (*tensor)->data = array->data();
      tensor->reshape(layout.matrix, strides);
    }
    const double untouched = out.get(10);
    ASSERT_EQ(run(call).message, "");
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t element = i / kStride * 10 + i % kStride;
      const bool is_written = i % kStride < 10;
      const std::size_t channel = layout.channels.of(element);
      ASSERT_EQ(out.get(i), is_written ? plain_out(element, channel) : untouched) << i;
      ASSERT_EQ(inner.get(i), is_written && has_inner() ? plain_inner(element, channel) : untouched)
          << i;
    }
  }
}

TEST_P(ComposeTest, StridesOfDimensionsOfSizeOneAreIgnored) {
  Call per_column = call();
  per_column.lora.reshape({1, 12, 1, 10}, {-7, 10, 0, 1});
  ASSERT_EQ(run(per_column).message, "");
  expect_right();
  Call per_row = call({{3, 4, 2, 5}, {1, 4, 1, 1}});
  per_row.gain.reshape({1, 4, 1, 1}, {-9, 1, 0, 77});
  ASSERT_EQ(run(per_row).message, "");
  expect_right(kPerImage);
}

TEST_P(ComposeTest, OneColumnMayHaveAnyColumnStride) {
  Call call = this->call({.matrix = {12, 1}, .gain = {1}});
  for (Tensor* input : {&call.lora, &call.base}) input->reshape({12, 1}, {10, 99});
  ASSERT_EQ(run(call).message, "");
  for (std::size_t row = 0; row < 12; ++row) EXPECT_EQ(out_.get(row), plain_out(row * 10, 0));
}

TEST_P(ComposeTest, ByteOffsetIsAddedToTheAddress) {
  Call call = this->call();
  call.lora->data = lora_.data() - 12;
  call.lora->byte_offset = 12;
  ASSERT_EQ(run(call).message, "");
  expect_right();
}

TEST_P(ComposeTest, PinnedMemoryIsHostMemory) {
  Call call = this->call();
  call.lora->device = {kDLCUDAHost, 3};
  ASSERT_EQ(run(call).message, "");
  expect_right();
}

TEST_P(ComposeTest, EitherOutputMayBeEitherInput) {
  for (const bool out_is_lora : {true, false}) {
    HostArray lora = lora_;
    HostArray base = base_;
    HostArray& out = out_is_lora ? lora : base;
    HostArray& inner = out_is_lora ? base : lora;
    Call call = this->call();
    call.lora->data = lora.data();
    call.base->data = base.data();
    call.out->data = out.data();
    call.inner->data = inner.data();
    ASSERT_EQ(run(call).message, "");
    expect_right(out, inner);
  }
  HostArray lora = lora_;
  Call call = this->call();
  call.lora->data = call.inner->data = lora.data();
  ASSERT_EQ(run(call).message, "");
  expect_right(out_, lora);
}

TEST_P(ComposeTest, ColumnWindowsOfOneBufferDoNotOverlap) {
  for (const std::size_t left : {0U, 10U}) {
    const std::size_t right = 10 - left;
    HostArray buffer(ElementType::kFloat32, 2 * kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      buffer.set(i / 10 * 20 + left + i % 10, lora_.get(i));
    }
    Call call = this->call();
    call.lora->data = buffer.data() + left * sizeof(float);
    call.lora.reshape({12, 10}, {20, 1});
    call.out->data = buffer.data() + right * sizeof(float);
    call.out.reshape({12, 10}, {20, 1});
    ASSERT_EQ(run(call).message, "");
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(buffer.get(i / 10 * 20 + left + i % 10), lora_.get(i));
      ASSERT_EQ(buffer.get(i / 10 * 20 + right + i % 10), plain_out(i, i % 10));
    }
    call.out->data = buffer.data() + sizeof(float);
    expect_refusal(run(call), "`out`", "`lora`");
  }
}

TEST_P(ComposeTest, EachTensorHasItsOwnElementType) {
  lora_ = HostArray(ElementType::kBfloat16, kCount);
  base_ = HostArray(ElementType::kFloat16, kCount);
  fill();
  for (const ElementType type : {ElementType::kBfloat16, ElementType::kFloat16}) {
    HostArray out(type, kCount);
    const Tensor out_tensor(out, {12, 10});
    Call call = this->call();
    call.out->data = out.data();
    call.out->dtype = out_tensor.get()->dtype;
    ASSERT_EQ(run(call).message, "");
    expect_right(out, inner_);
    Call other = this->call();
    other.inner->data = out.data();
    other.inner->dtype = out_tensor.get()->dtype;
    ASSERT_EQ(run(other).message, "");
    expect_right(out_, out);
  }
}

TEST_P(ComposeTest, Float64IsComputedInFloat64) {
  for (HostArray* array : {&lora_, &base_, &gain_, &bias_, &out_, &inner_}) {
    *array = HostArray(ElementType::kFloat64, kCount);
  }
  lora_.fill(0.1, 0.3, 7);
  base_.fill(0.7, 0.1, 7);
  gain_.fill(0.99, 0.001, 7);
  bias_.fill(0.3, 0.07, 7);
  Call call = this->call({.matrix = {10}});
  call.scale = 0.1;
  ASSERT_EQ(run(call).message, "");
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(out_.get(i), plain_out<double>(i, i, 0.1));
    if (has_inner()) EXPECT_EQ(inner_.get(i), plain_inner<double>(i, i, 0.1));
  }
}

TEST_P(ComposeTest, NonFiniteScalePropagates) {
  for (const double scale :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e300}) {
    lora_.set(0, 1);
    Call call = this->call();
    call.scale = scale;
    ASSERT_EQ(run(call).message, "");
    EXPECT_FALSE(std::isfinite(out_.get(0)));
    EXPECT_EQ(std::isnan(out_.get(0)), std::isnan(scale));
  }
}

TEST_P(ComposeTest, EmptyTensorsNeedNoMemory) {
  for (const Layout& layout : std::vector<Layout>{{.matrix = {0, 10}},
                                                  {.matrix = {12, 0}, .gain = {0}},
                                                  {.matrix = {0, 4, 2, 5}, .gain = {1, 4, 1, 1}},
                                                  {.matrix = {3, 4, 0, 5}, .gain = {1, 4, 1, 1}},
                                                  {.matrix = {3, 0, 2, 5}, .gain = {1, 0, 1, 1}}}) {
    Call call = this->call(layout);
    for (Tensor* tensor : {&call.lora, &call.base, &call.out, &call.inner}) {
      (*tensor)->data = nullptr;
    }
    EXPECT_EQ(run(call).message, "");
    call.gain->data = call.bias->data = nullptr;
    EXPECT_EQ(run(call).message, "");
  }
  Call strided = call({.matrix = {0, 10}});
  strided.lora.reshape({2, 0, 10}, {5, 3, 7});
  EXPECT_EQ(run(strided).message, "");
  EXPECT_EQ(statistics_of(engine_.get()).launches, 0);
}

TEST_P(ComposeTest, NewAdapterAddsNothing) {
  lora_.fill(0, 0, 1);
  gain_.fill(1, 0, 1);
  ASSERT_EQ(run(call()).message, "");
  const bool has_result = GetParam().form == Form::kResidual;
  EXPECT_EQ(out_.bytes(), has_result ? base_.bytes() : lora_.bytes());
}

}  // namespace
}  // namespace dorajit::bindings
