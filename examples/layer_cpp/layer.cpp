// The forward pass of one DoRA layer with raw pointers: the gain of each output feature from the
// weight and its low-rank update, then the composition. Plain loops stand for the matrix library
// that computes x W^T and x A^T B^T. The result is checked against the definition of DoRA:
// out = x (g (W + s B A))^T with g = magnitude / || W + s B A || per row.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dorajit/dorajit.hpp>
#include <optional>
#include <vector>

namespace {

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kIn = 192;
constexpr std::int64_t kOut = 128;
constexpr std::int64_t kRank = 8;
constexpr float kScale = 2.0F;

// A row-major matrix with values generated from a seed.
struct Matrix {
  Matrix(std::int64_t row_count, std::int64_t column_count, float size, int seed)
      : rows(row_count),
        columns(column_count),
        values(static_cast<std::size_t>(row_count * column_count)) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = size * std::sin(static_cast<float>(i) * 0.7F + static_cast<float>(seed));
    }
  }

  float& at(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  float at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }

  dorajit::TensorRef tensor() {
    return {values.data(), {rows, columns}, dorajit::ElementType::kFloat32};
  }

  std::int64_t rows;
  std::int64_t columns;
  std::vector<float> values;
};

// left @ right^T
Matrix times_transposed(const Matrix& left, const Matrix& right) {
  Matrix product(left.rows, right.rows, 0.0F, 0);
  for (std::int64_t i = 0; i < left.rows; ++i) {
    for (std::int64_t j = 0; j < right.rows; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < left.columns; ++k) sum += double{left.at(i, k)} * right.at(j, k);
      product.at(i, j) = static_cast<float>(sum);
    }
  }
  return product;
}

dorajit::TensorRef features(std::vector<float>& values) {
  return {values.data(), {kOut}, dorajit::ElementType::kFloat32};
}

// The number of elements of `out` with an error of more than 1e-5 of the largest result.
int count_differences(const Matrix& out, const Matrix& x, const Matrix& weight, const Matrix& a,
                      const Matrix& b, const std::vector<float>& magnitude) {
  std::vector<double> results;
  double largest = 0;
  for (std::int64_t j = 0; j < kOut; ++j) {
    std::vector<double> row(kIn);
    double square = 0;
    for (std::int64_t i = 0; i < kIn; ++i) {
      double value = weight.at(j, i);
      for (std::int64_t k = 0; k < kRank; ++k) value += kScale * double{b.at(j, k)} * a.at(k, i);
      row[static_cast<std::size_t>(i)] = value;
      square += value * value;
    }
    const double gain = magnitude[static_cast<std::size_t>(j)] / std::sqrt(square);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      double sum = 0;
      for (std::int64_t i = 0; i < kIn; ++i) sum += x.at(t, i) * row[static_cast<std::size_t>(i)];
      results.push_back(gain * sum);
      largest = std::fmax(largest, std::fabs(gain * sum));
    }
  }
  int differences = 0;
  for (std::int64_t j = 0; j < kOut; ++j) {
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const double result = results[static_cast<std::size_t>(j * kTokens + t)];
      // Written so that NaN counts as an error.
      differences += !(std::fabs(result - out.at(t, j)) <= 1e-5 * largest);
    }
  }
  return differences;
}

}  // namespace

int main() {
  try {
    Matrix x(kTokens, kIn, 1.0F, 1);
    Matrix weight(kOut, kIn, 0.05F, 2);
    Matrix a(kRank, kIn, 0.1F, 3);
    Matrix b(kOut, kRank, 0.02F, 4);
    std::vector<float> magnitude(kOut, 0.8F);
    std::vector<float> gain(kOut);

    dorajit::Engine engine;
    // weight, lora_A, lora_B, magnitude, then the outputs: norm, norm_square, gain, divisor.
    const dorajit::Operation weight_norm("weight_norm");
    const auto tensors = {std::optional<dorajit::ConstTensorRef>(weight.tensor()),
                          std::optional<dorajit::ConstTensorRef>(a.tensor()),
                          std::optional<dorajit::ConstTensorRef>(b.tensor()),
                          std::optional<dorajit::ConstTensorRef>(features(magnitude)),
                          std::optional<dorajit::ConstTensorRef>(),
                          std::optional<dorajit::ConstTensorRef>(),
                          std::optional<dorajit::ConstTensorRef>(features(gain)),
                          std::optional<dorajit::ConstTensorRef>()};
    std::vector<double> memory(  // of the tensors' device
        static_cast<std::size_t>(dorajit::Engine::workspace_bytes(weight_norm, tensors) / 8 + 1));
    engine.launch(nullptr, weight_norm, tensors, {kScale},
                  {memory.data(), static_cast<std::int64_t>(memory.size() * sizeof(double))});

    Matrix base = times_transposed(x, weight);
    Matrix lora = times_transposed(times_transposed(x, a), b);
    Matrix out(kTokens, kOut, 0.0F, 0);
    engine.compose(nullptr, lora.tensor(), base.tensor(), features(gain), kScale, out.tensor());
    for (std::size_t i = 0; i < out.values.size(); ++i) out.values[i] += base.values[i];

    const int differences = count_differences(out, x, weight, a, b, magnitude);
    const dorajit::Statistics statistics = engine.statistics();
    std::printf(
        "a layer of %lld to %lld features, rank %lld: %d elements differ from the definition "
        "(%lld compilations, %lld trials)\n",
        static_cast<long long>(kIn), static_cast<long long>(kOut), static_cast<long long>(kRank),
        differences, static_cast<long long>(statistics.compilations),
        static_cast<long long>(statistics.trials));
    return differences == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const dorajit::Error& error) {
    std::fprintf(stderr, "%s: %s\n%s", dorajit::status_name(error.status()), error.what(),
                 error.log().c_str());
    return EXIT_FAILURE;
  }
}
