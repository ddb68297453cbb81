// Trains the magnitude of one DoRA layer in host memory: norms, forward, backward, update. Every
// step is checked against plain expressions.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dorajit/dorajit.hpp>
#include <vector>

namespace {

constexpr std::int64_t kTokens = 512;
constexpr std::int64_t kFeatures = 256;
constexpr auto kCount = static_cast<std::size_t>(kTokens * kFeatures);
constexpr float kScale = 0.5F;
constexpr float kRate = 8.0F / kTokens;
constexpr int kSteps = 5;

using Values = std::vector<float>;

dorajit::TensorRef matrix(Values& values) {
  return {values.data(), {kTokens, kFeatures}, dorajit::ElementType::kFloat32};
}

dorajit::TensorRef features(Values& values) {
  return {values.data(), {kFeatures}, dorajit::ElementType::kFloat32};
}

struct Layer {
  Values lora = Values(kCount);
  Values base = Values(kCount);
  Values target = Values(kCount);
  Values magnitude = Values(kFeatures, 1.0F);
  // The factored terms of the row norms of W + scale B A.
  Values w_norm_sq = Values(kFeatures);
  Values cross = Values(kFeatures);
  Values ba_norm_sq = Values(kFeatures);

  Values norm = Values(kFeatures);
  Values gain = Values(kFeatures);
  Values out = Values(kCount);
  Values inner = Values(kCount);
  Values d_out = Values(kCount);
  Values d_lora = Values(kCount);
  Values d_base = Values(kCount);
  Values d_gain = Values(kFeatures);
};

void fill(Layer& layer) {
  for (std::size_t i = 0; i < kCount; ++i) {
    layer.lora[i] = 0.01F * static_cast<float>(i % 97) - 0.5F;
    layer.base[i] = 1.0F / static_cast<float>(i % 31 + 1);
    layer.target[i] = 0.5F * layer.base[i];
  }
  for (std::size_t j = 0; j < kFeatures; ++j) {
    layer.w_norm_sq[j] = 1.0F + 0.001F * static_cast<float>(j);
    layer.cross[j] = 0.01F;
    layer.ba_norm_sq[j] = 0.02F;
  }
}

// Runs one step and returns the loss before it.
double step(dorajit::Engine& engine, Layer& layer, std::vector<std::byte>& workspace) {
  engine.norm_assembly(nullptr, features(layer.w_norm_sq), features(layer.cross),
                       features(layer.ba_norm_sq), kScale, features(layer.norm));
  for (std::size_t j = 0; j < kFeatures; ++j) {
    layer.gain[j] = layer.magnitude[j] / std::max(layer.norm[j], 1e-12F);
  }
  engine.compose_inner(nullptr, matrix(layer.lora), matrix(layer.base), features(layer.gain),
                       kScale, matrix(layer.out), matrix(layer.inner));

  double loss = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    layer.d_out[i] = layer.out[i] - layer.target[i];
    loss += 0.5 * layer.d_out[i] * layer.d_out[i];
  }

  dorajit::Gradients gradients;
  gradients.d_lora = matrix(layer.d_lora);
  gradients.d_base = matrix(layer.d_base);
  gradients.d_gain = features(layer.d_gain);
  gradients.inner = matrix(layer.inner);
  gradients.workspace = workspace.data();
  gradients.workspace_bytes = static_cast<std::int64_t>(workspace.size());
  engine.backward(nullptr, matrix(layer.d_out), features(layer.gain), kScale, gradients);
  for (std::size_t j = 0; j < kFeatures; ++j) {
    layer.magnitude[j] -= kRate * layer.d_gain[j] / layer.norm[j];
  }
  return loss;
}

// The number of elements of the last step that differ from plain loops: in any bit where nothing is
// summed, by more than the rounding of a sum elsewhere.
int count_differences(const Layer& layer) {
  int differences = 0;
  std::vector<double> sums(kFeatures);
  std::vector<double> sizes(kFeatures);
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t j = i % kFeatures;
    const float g = layer.gain[j];
    const float scaled_lora = kScale * layer.lora[i];
    differences += layer.out[i] != (g - 1.0F) * layer.base[i] + g * scaled_lora;
    differences += layer.inner[i] != scaled_lora + layer.base[i];
    differences += layer.d_lora[i] != (g * kScale) * layer.d_out[i];
    differences += layer.d_base[i] != (g - 1.0F) * layer.d_out[i];
    const double term = double{layer.inner[i]} * layer.d_out[i];
    sums[j] += term;
    sizes[j] += std::fabs(term);
  }
  for (std::size_t j = 0; j < kFeatures; ++j) {
    differences += std::fabs(layer.d_gain[j] - sums[j]) > 1e-6 * sizes[j];
  }
  return differences;
}

}  // namespace

int main() {
  try {
    dorajit::Engine engine;
    Layer layer;
    fill(layer);
    std::vector<std::byte> workspace(static_cast<std::size_t>(
        dorajit::Engine::backward_workspace(matrix(layer.d_out), features(layer.gain))));
    int differences = 0;
    const double first_loss = step(engine, layer, workspace);
    double loss = first_loss;
    for (int i = 1; i < kSteps; ++i) {
      differences += count_differences(layer);
      loss = step(engine, layer, workspace);
    }
    differences += count_differences(layer);
    const dorajit::Statistics statistics = engine.statistics();
    std::printf(
        "trained %d steps, loss %.1f to %.1f: %d elements differ from the plain expressions "
        "(%lld compilations, %lld trials)\n",
        kSteps, first_loss, loss, differences, static_cast<long long>(statistics.compilations),
        static_cast<long long>(statistics.trials));
    return differences == 0 && loss < first_loss ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const dorajit::Error& error) {
    std::fprintf(stderr, "%s: %s\n%s", dorajit::status_name(error.status()), error.what(),
                 error.log().c_str());
    return EXIT_FAILURE;
  }
}
