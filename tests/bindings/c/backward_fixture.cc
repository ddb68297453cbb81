#include "tests/bindings/c/backward_fixture.h"

namespace dorajit::bindings {
namespace {

// Computes in the library's compute type: double for double, else float.
double times(ElementType type, double a, double b) {
  return type == ElementType::kFloat64 ? a * b : static_cast<float>(a) * static_cast<float>(b);
}

void expect_elements(const HostArray& got, const HostArray& want, const char* name) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got.get(i), want.get(i)) << name << " " << i;
  }
}

}  // namespace

void BackwardTest::resize(std::int64_t rows, std::int64_t cols, ElementType type) {
  rows_ = rows;
  cols_ = cols;
  const auto count = static_cast<std::size_t>(rows * cols);
  const auto channels = static_cast<std::size_t>(cols);
  d_out_ = HostArray(type, count);
  inner_ = HostArray(type, count);
  gain_ = HostArray(type, channels);
  d_lora_ = HostArray(type, count);
  d_base_ = HostArray(type, count);
  d_gain_ = HostArray(type, channels);
  d_out_.fill(-2, 0.25, 17);
  inner_.fill(1, -0.125, 23);
  gain_.fill(0.984375, 0.0078125, 5);
  for (HostArray* output : {&d_lora_, &d_base_, &d_gain_}) output->poison();
  const WorkspaceAnswer answer =
      backward_workspace(*tensor(d_out_, {rows, cols}), *tensor(gain_, {cols}));
  EXPECT_EQ(answer.outcome.message, "");
  workspace_.assign(static_cast<std::size_t>(answer.bytes), std::byte{0xA5});
}

BackwardCall BackwardTest::call(const Wanted& wanted) {
  return {.d_out = tensor(d_out_, {rows_, cols_}),
          .inner = wanted.d_gain ? tensor(inner_, {rows_, cols_}) : nullptr,
          .gain = tensor(gain_, {cols_}),
          .scale = kScale,
          .d_lora = wanted.d_lora ? tensor(d_lora_, {rows_, cols_}) : nullptr,
          .d_base = wanted.d_base ? tensor(d_base_, {rows_, cols_}) : nullptr,
          .d_gain = wanted.d_gain ? tensor(d_gain_, {cols_}) : nullptr,
          .workspace = wanted.d_gain && !workspace_.empty() ? workspace_.data() : nullptr,
          .workspace_bytes = wanted.d_gain ? std::ssize(workspace_) : 0};
}

const Tensor* BackwardTest::tensor(void* data, ElementType type, const Shape& shape) {
  return tensors_.emplace_back(std::make_unique<Tensor>(data, type, shape)).get();
}

void BackwardTest::expect_results(const Wanted& wanted) const {
  HostArray d_lora(d_lora_.type(), d_lora_.size());
  HostArray d_base(d_base_.type(), d_base_.size());
  HostArray d_gain(d_gain_.type(), d_gain_.size());
  for (HostArray* output : {&d_lora, &d_base, &d_gain}) output->poison();
  std::vector<double> sums(gain_.size());
  for (std::size_t i = 0; i < d_out_.size(); ++i) {
    const std::size_t channel = i % sums.size();
    const double gain = gain_.get(channel);
    const ElementType type = d_out_.type();
    if (wanted.d_lora) d_lora.set(i, times(type, times(type, gain, kScale), d_out_.get(i)));
    if (wanted.d_base) d_base.set(i, times(type, gain - 1, d_out_.get(i)));
    sums[channel] += inner_.get(i) * d_out_.get(i);
  }
  if (wanted.d_gain) {
    for (std::size_t channel = 0; channel < sums.size(); ++channel) {
      d_gain.set(channel, sums[channel]);
    }
  }
  expect_elements(d_lora_, d_lora, "d_lora");
  expect_elements(d_base_, d_base, "d_base");
  expect_elements(d_gain_, d_gain, "d_gain");
}

std::vector<std::vector<std::byte>> BackwardTest::all_bytes() const {
  return {d_out_.bytes(),  inner_.bytes(),  gain_.bytes(), d_lora_.bytes(),
          d_base_.bytes(), d_gain_.bytes(), workspace_};
}

void BackwardTest::expect_refused(const BackwardCall& call, const std::string& argument,
                                  const std::string& part, dorajit_status status) {
  const auto before = all_bytes();
  const Outcome outcome = run(call);
  expect_refusal(outcome, "`" + argument + "`", part, status);
  EXPECT_TRUE(outcome.message.starts_with("backward: ")) << outcome.message;
  EXPECT_TRUE(all_bytes() == before) << "written despite: " << outcome.message;
}

void BackwardTest::use_compiled_kernels() {
  set_variable("DORAJIT_CXX", std::nullopt);
  engine_ = make_engine();
}

}  // namespace dorajit::bindings
