// The activations of math/activations.h against the functions of the standard library.
#include "kernel_templates/math/activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace dorajit::kernels {
namespace {

struct Exact {
  long double value;
  long double derivative;
};

Exact silu(long double x) {
  const long double sigmoid = 1 / (1 + std::exp(-x));
  return {x * sigmoid, sigmoid * (1 + x * (1 - sigmoid))};
}

Exact gelu(long double x) {
  const long double cumulative = std::erfc(-x / std::numbers::sqrt2_v<long double>) / 2;
  const long double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<long double>);
  return {x * cumulative, cumulative + x * density};
}

Exact gelu_tanh(long double x) {
  const long double root = std::sqrt(2 / std::numbers::pi_v<long double>);
  const long double tangent = std::tanh(root * (x + 0.044715L * x * x * x));
  const long double slope = root * (1 + 3 * 0.044715L * x * x);
  return {x / 2 * (1 + tangent), (1 + tangent) / 2 + x / 2 * (1 - tangent * tangent) * slope};
}

// `bound` in units of the type's epsilon: relative to |x|, and twice that to 1 + |x| for the
// derivative.
template <class Activation, class T>
void expect_near(Exact (*exact)(long double), long double bound) {
  const long double unit = bound * std::numeric_limits<T>::epsilon();
  for (int i = -40000; i <= 40000; ++i) {
    const T x = static_cast<T>(i) / T(1009);
    const auto [value, derivative] = exact(x);
    const long double magnitude = std::fabs(static_cast<long double>(x));
    ASSERT_NEAR(Activation::value(x), value, unit * magnitude) << x;
    ASSERT_NEAR(Activation::derivative(x), derivative, 2 * unit * (1 + magnitude)) << x;
  }
}

TEST(Activations, AreThoseOfTheStandardLibrary) {
  expect_near<Silu, float>(silu, 2);
  expect_near<Silu, double>(silu, 2);
  expect_near<Gelu, float>(gelu, 2);
  expect_near<Gelu, double>(gelu, 2);
  expect_near<GeluTanh, float>(gelu_tanh, 3);
  expect_near<GeluTanh, double>(gelu_tanh, 3);
}

TEST(Activations, KeepTheirLimits) {
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto check = []<class Activation>(Activation) {
    for (const float x : {100.0F, 1e4F, 1e30F}) {
      EXPECT_EQ(Activation::value(x), x);
      EXPECT_EQ(Activation::derivative(x), 1.0F);
      EXPECT_NEAR(Activation::value(-x), 0, 1e-30);
      EXPECT_NEAR(Activation::derivative(-x), 0, 1e-30);
    }
    EXPECT_EQ(Activation::value(0.0F), 0.0F);
    EXPECT_EQ(Activation::derivative(0.0F), 0.5F);
    EXPECT_EQ(Activation::value(kInfinity), kInfinity);
    EXPECT_TRUE(std::isnan(Activation::value(std::nanf(""))));
    EXPECT_TRUE(std::isnan(Activation::derivative(std::nanf(""))));
  };
  check(Silu());
  check(Gelu());
  check(GeluTanh());
}

TEST(Exponential, IsWithinAUnitInTheLastPlace) {
  for (int i = -87000; i <= 87000; ++i) {
    const float x = static_cast<float>(i) / 1000.0F;
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(exponential(x), exact, 0.65 * std::numeric_limits<float>::epsilon() * exact) << x;
    const double wide = i / 125.0;
    const long double wider = std::exp(static_cast<long double>(wide));
    ASSERT_NEAR(exponential(wide), wider, 1.0L * std::numeric_limits<double>::epsilon() * wider);
  }
  EXPECT_EQ(exponential(0.0F), 1.0F);
}

TEST(Sigmoid, HasItsLimits) {
  EXPECT_EQ(sigmoid(0.0F), 0.5F);
  EXPECT_EQ(sigmoid(1e30F), 1.0F);
  EXPECT_EQ(sigmoid(-1e30F), 0.0F);
  EXPECT_EQ(sigmoid(-std::numeric_limits<float>::infinity()), 0.0F);
  EXPECT_GT(sigmoid(-87.0F), 0.0F);
}

}  // namespace
}  // namespace dorajit::kernels
