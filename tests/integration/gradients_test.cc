// The gradients of backward equal those of compose, by central differences in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernel_templates/partial_sums.h"
#include "kernel_templates/template.h"
#include "runtime/device/cpu/cpu_device.h"

namespace dorajit::tests {
namespace {

using kernels::Broadcast;
using kernels::Variant;
using enum kernels::ElementType;

using Matrix = std::vector<double>;

struct Shape {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t channels;
};

constexpr double kScale = 0.7;

// Operations on contiguous f64 operands, in the registry's order.
class Gradients : public testing::TestWithParam<Broadcast> {
 protected:
  Gradients() {
    for (Matrix* matrix : {&lora_, &base_, &d_out_}) *matrix = normal(shape_.rows * shape_.cols, 0);
    gain_ = normal(shape_.channels, 1);
  }

  Matrix normal(std::int64_t count, double center) {
    std::normal_distribution<double> distribution(center, 1.0);
    Matrix values(static_cast<std::size_t>(count));
    for (double& value : values) value = distribution(random_);
    return values;
  }

  static Variant variant_of(const kernels::Operation& op) {
    Variant variant{.operation = &op, .broadcast = GetParam()};
    for (std::size_t i = 0; i < op.operands.size(); ++i) variant.types[i] = kFloat64;
    return variant;
  }

  void run(const kernels::Operation& op, std::vector<Matrix*> operands) {
    const Variant variant = variant_of(op);
    const kernels::Config config = kernels::builtin_cpu_config(variant);
    Matrix workspace(static_cast<std::size_t>(kernels::sum_workspace_bytes(
                         GetParam(), shape_.rows, shape_.cols, shape_.channels, sizeof(double))) /
                     sizeof(double));
    kernels::KernelArguments arguments{.sizes = {shape_.rows, shape_.cols, shape_.channels},
                                       .workspace = workspace.data(),
                                       .scalars = {kScale},
                                       .operands = {}};
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const auto elements = static_cast<std::int64_t>(operands[i]->size());
      arguments.operands[i] = {.data = operands[i]->data(),
                               .row_stride = elements == shape_.channels ? 0 : shape_.cols};
    }
    ASSERT_TRUE(device_.launch(*device::CpuDevice::builtin(variant), config, arguments, nullptr));
  }

  // The function that is differentiated: the sum of d_out * compose(lora, base, gain).
  double loss() {
    Matrix out(d_out_.size());
    run(kernels::operation("compose"), {&lora_, &base_, &gain_, &out});
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += d_out_[i] * out[i];
    return sum;
  }

  // The loss is linear in each operand, so a wide step costs no accuracy.
  void expect_gradient(Matrix& operand, const Matrix& gradient, const char* name) {
    constexpr double kStep = 0.5;
    ASSERT_EQ(gradient.size(), operand.size());
    for (std::size_t i = 0; i < operand.size(); i += operand.size() / 50 + 1) {
      const double value = operand[i];
      operand[i] = value + kStep;
      const double above = loss();
      operand[i] = value - kStep;
      const double below = loss();
      operand[i] = value;
      EXPECT_NEAR((above - below) / (2 * kStep), gradient[i], 1e-9) << name << " " << i;
    }
  }

  std::mt19937 random_{7};
  device::CpuDevice device_;
  Shape shape_ = GetParam() == Broadcast::kPerRow ? Shape{.rows = 600, .cols = 3, .channels = 4}
                                                  : Shape{.rows = 600, .cols = 5, .channels = 5};
  Matrix lora_;
  Matrix base_;
  Matrix d_out_;
  Matrix gain_;
};

TEST_P(Gradients, EqualCentralDifferencesOfCompose) {
  Matrix out(d_out_.size());
  Matrix inner(d_out_.size());
  run(kernels::operation("compose_inner"), {&lora_, &base_, &gain_, &out, &inner});
  Matrix d_lora(d_out_.size());
  Matrix d_base(d_out_.size());
  Matrix d_gain(gain_.size());
  run(kernels::operation("backward"), {&d_out_, &inner, &gain_, &d_lora, &d_base, &d_gain});
  expect_gradient(lora_, d_lora, "lora");
  expect_gradient(base_, d_base, "base");
  expect_gradient(gain_, d_gain, "gain");
}

INSTANTIATE_TEST_SUITE_P(Broadcasts, Gradients,
                         testing::Values(Broadcast::kPerColumn, Broadcast::kPerRow));

}  // namespace
}  // namespace dorajit::tests
