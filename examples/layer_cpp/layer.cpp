// The forward and the backward pass of one DoRA layer, out = x (g (W + s B A))^T with
// g = magnitude / || W + s B A || per row. Plain loops stand for the matrix library. Inputs and
// results are written to files of the folder that the program is given; check.py checks them.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dorajit/dorajit.hpp>
#include <exception>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kIn = 192;
constexpr std::int64_t kOut = 128;
constexpr std::int64_t kRank = 8;
constexpr float kScale = 2.0F;

struct Tensor {
  explicit Tensor(std::vector<std::int64_t> sizes) : shape(std::move(sizes)) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    values.resize(static_cast<std::size_t>(count));
  }

  float& at(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * shape.back() + column)];
  }
  float at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * shape.back() + column)];
  }

  dorajit::TensorRef ref() { return {values.data(), shape, dorajit::ElementType::kFloat32}; }
  dorajit::ConstTensorRef ref() const {
    return {values.data(), shape, dorajit::ElementType::kFloat32};
  }

  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

Tensor random_tensor(std::mt19937& generator, std::vector<std::int64_t> shape, float least,
                     float most) {
  Tensor tensor(std::move(shape));
  std::uniform_real_distribution<float> distribution(least, most);
  for (float& value : tensor.values) value = distribution(generator);
  return tensor;
}

Tensor transposed(const Tensor& matrix) {
  Tensor result({matrix.shape[1], matrix.shape[0]});
  for (std::int64_t i = 0; i < matrix.shape[0]; ++i) {
    for (std::int64_t j = 0; j < matrix.shape[1]; ++j) result.at(j, i) = matrix.at(i, j);
  }
  return result;
}

Tensor product(const Tensor& left, const Tensor& right) {
  Tensor result({left.shape[0], right.shape[1]});
  for (std::int64_t i = 0; i < left.shape[0]; ++i) {
    for (std::int64_t j = 0; j < right.shape[1]; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < left.shape[1]; ++k)
        sum += double{left.at(i, k)} * right.at(k, j);
      result.at(i, j) = static_cast<float>(sum);
    }
  }
  return result;
}

// Calls an operation with a workspace of its own. An application keeps one for each stream.
void launch(dorajit::Engine& engine, const dorajit::Operation& operation,
            std::initializer_list<std::optional<dorajit::ConstTensorRef>> tensors) {
  const std::int64_t bytes = dorajit::Engine::workspace_bytes(operation, tensors);
  std::vector<std::byte> workspace(static_cast<std::size_t>(bytes));
  engine.launch(nullptr, operation, tensors, {kScale}, {workspace.data(), bytes});
}

struct Layer {
  Tensor weight;  // frozen
  Tensor a;
  Tensor b;
  Tensor magnitude;
};

// What the backward pass needs of the forward pass.
struct Saved {
  Tensor gain;
  Tensor divisor;
  Tensor low;
  Tensor inner;
};

struct Gradients {
  Tensor x;
  Tensor a;
  Tensor b;
  Tensor magnitude;
};

std::pair<Tensor, Saved> forward(dorajit::Engine& engine, const Layer& layer, const Tensor& x) {
  Tensor gain({kOut});
  Tensor divisor({kOut});
  launch(engine, "weight_norm",
         {layer.weight.ref(), layer.a.ref(), layer.b.ref(), layer.magnitude.ref(),
          /*norm=*/std::nullopt, /*norm_square=*/std::nullopt, gain.ref(), divisor.ref()});
  Tensor out = product(x, transposed(layer.weight));
  Tensor low = product(x, transposed(layer.a));
  Tensor inner = product(low, transposed(layer.b));
  // In place: out over the base layer's result, inner over low B^T. With 16-bit factors
  // compose_low_rank computes low B^T itself.
  engine.compose_residual(nullptr, inner.ref(), out.ref(), gain.ref(), /*bias=*/std::nullopt,
                          kScale, out.ref(), inner.ref());
  return {std::move(out), {std::move(gain), std::move(divisor), std::move(low), std::move(inner)}};
}

// The norm is a constant of the backward pass, as in the DoRA paper.
Gradients backward(dorajit::Engine& engine, const Layer& layer, const Tensor& x, const Saved& saved,
                   const Tensor& d_out) {
  Tensor d_lora({kTokens, kOut});
  Tensor d_result({kTokens, kOut});
  Tensor d_magnitude({kOut});
  launch(engine, "magnitude_backward",
         {d_out.ref(), saved.inner.ref(), saved.gain.ref(), saved.divisor.ref(), d_lora.ref(),
          d_result.ref(), d_magnitude.ref()});
  // d_lora includes the scale.
  const Tensor d_low = product(d_lora, layer.b);
  Tensor d_x = product(d_result, layer.weight);
  const Tensor through_low = product(d_low, layer.a);
  for (std::size_t i = 0; i < d_x.values.size(); ++i) d_x.values[i] += through_low.values[i];
  return {std::move(d_x), product(transposed(d_low), x), product(transposed(d_lora), saved.low),
          std::move(d_magnitude)};
}

// FOLDER/NAME.f32: the elements alone, in the byte order of the host, row by row.
void write(const std::string& folder, const std::string& name, const std::vector<float>& values) {
  const std::string path = folder + "/" + name + ".f32";
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void run(const std::string& folder) {
  std::mt19937 generator(1);
  const Layer layer{random_tensor(generator, {kOut, kIn}, -0.1F, 0.1F),
                    random_tensor(generator, {kRank, kIn}, -0.1F, 0.1F),
                    random_tensor(generator, {kOut, kRank}, -0.1F, 0.1F),
                    random_tensor(generator, {kOut}, 0.5F, 1.5F)};
  const Tensor x = random_tensor(generator, {kTokens, kIn}, -1.0F, 1.0F);
  const Tensor d_out = random_tensor(generator, {kTokens, kOut}, -1.0F, 1.0F);

  dorajit::Engine engine;
  const auto [out, saved] = forward(engine, layer, x);
  const Gradients gradients = backward(engine, layer, x, saved, d_out);

  write(folder, "scale", {kScale});
  write(folder, "weight", layer.weight.values);
  write(folder, "a", layer.a.values);
  write(folder, "b", layer.b.values);
  write(folder, "magnitude", layer.magnitude.values);
  write(folder, "x", x.values);
  write(folder, "d_out", d_out.values);
  write(folder, "out", out.values);
  write(folder, "d_x", gradients.x.values);
  write(folder, "d_a", gradients.a.values);
  write(folder, "d_b", gradients.b.values);
  write(folder, "d_magnitude", gradients.magnitude.values);
  const dorajit::Statistics statistics = engine.statistics();
  std::printf(
      "wrote the forward and backward pass of a layer of %lld to %lld features, rank %lld, to %s "
      "(%lld compilations, %lld trials)\n",
      static_cast<long long>(kIn), static_cast<long long>(kOut), static_cast<long long>(kRank),
      folder.c_str(), static_cast<long long>(statistics.compilations),
      static_cast<long long>(statistics.trials));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: layer FOLDER\n");
    return EXIT_FAILURE;
  }
  try {
    run(arguments[1]);
    return EXIT_SUCCESS;
  } catch (const dorajit::Error& error) {
    std::fprintf(stderr, "%s: %s\n%s", dorajit::status_name(error.status()), error.what(),
                 error.log().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return EXIT_FAILURE;
}
