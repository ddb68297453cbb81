#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <format>
#include <limits>
#include <memory>
#include <random>

#include "kernel_templates/sizes.h"
#include "runtime/launch/problem.h"
#include "tests/conformance/guarded_tensor.h"
#include "tests/conformance/matrix_cases.h"

namespace dorajit::tests {
namespace {

using kernels::ElementType;

enum Operand : std::size_t {
  kWeight,
  kLoraA,
  kLoraB,
  kMagnitude,
  kNorm,
  kSquare,
  kGain,
  kDivisor,
  kCount
};

constexpr std::size_t kGuardBytes = GuardedTensor::kGuardBytes;
constexpr std::byte kPoison = GuardedTensor::kPoison;

Layout layout_of(const WeightNormCase& one) {
  return {.row_padding = one.row_padding, .misalignment = one.misalignment};
}

class Call {
 public:
  Call(const Types& types, const WeightNormCase& one) : case_(one) {
    variant_.operation = &kernels::operation("weight_norm");
    is_double_ = types.front() == ElementType::kFloat64;
    std::ranges::copy(types, variant_.types.begin());
    const ElementType wide = is_double_ ? ElementType::kFloat64 : ElementType::kFloat32;
    for (std::size_t i = kMagnitude; i < kCount; ++i) variant_.types[i] = wide;
    tensors_.emplace_back(types[kWeight], one.rows, one.columns, layout_of(one));
    tensors_.emplace_back(types[kLoraA], one.rank, one.columns, layout_of(one));
    tensors_.emplace_back(types[kLoraB], one.rows, one.rank, layout_of(one));
    for (std::size_t i = kMagnitude; i < kCount; ++i) {
      tensors_.emplace_back(wide, 1, one.rows, Layout{});
    }
    fill();
  }

  [[nodiscard]] const kernels::Variant& variant() const { return variant_; }

  [[nodiscard]] kernels::Sizes sizes() const { return {case_.rows, case_.columns, case_.rank}; }

  [[nodiscard]] int vector_width(kernels::DeviceKind kind) const {
    std::array<launch::TensorView, kCount> views{};
    for (std::size_t i = 0; i < kCount; ++i) {
      views[i] = {.data = std::bit_cast<void*>(tensors_[i].begin),
                  .type = tensors_[i].type,
                  .device = {.kind = kind, .ordinal = 0},
                  .rows = tensors_[i].rows,
                  .cols = tensors_[i].columns,
                  .row_stride = tensors_[i].stride};
    }
    return launch::make_problem(variant_, sizes(), views).vector_width;
  }

  Status upload(device::Device& device) {
    for (GuardedTensor& tensor : tensors_) {
      DORAJIT_ASSIGN(tensor.buffer, device.allocate(tensor.bytes.size()));
      DORAJIT_TRY(device.upload(tensor.buffer->data(), tensor.bytes.data(), tensor.bytes.size()));
    }
    const auto bytes = static_cast<std::size_t>(
        kernels::workspace_bytes(variant_, device.info().traits.kind, sizes()));
    DORAJIT_ASSIGN(workspace_, device.allocate(bytes + kGuardBytes));
    return {};
  }

  // Returns what is wrong with the kernel's output; empty if nothing is. Stores the norms.
  Result<std::string> run(device::Device& device, const launch::ReadyKernel& ready,
                          std::vector<double>& norms) {
    DORAJIT_TRY(device.fill(workspace_->data(), 0xA5, workspace_->size()));
    kernels::KernelArguments arguments{};
    std::ranges::copy(sizes(), arguments.sizes);
    arguments.workspace = workspace_->data();
    arguments.scalars[0] = case_.scale;
    for (std::size_t i = 0; i < kCount; ++i) {
      if (i >= kNorm) {
        DORAJIT_TRY(device.upload(tensors_[i].buffer->data(), tensors_[i].bytes.data(),
                                  tensors_[i].bytes.size()));
      }
      arguments.operands[i] = tensors_[i].at(tensors_[i].buffer->data());
    }
    DORAJIT_TRY(device.launch(*ready.kernel, ready.config, arguments, device.own_stream()));
    DORAJIT_TRY(device.synchronize(device.own_stream()));
    std::string wrong;
    std::vector<GuardedTensor> written;
    for (std::size_t i = 0; i < kCount; ++i) {
      const Layout layout = i < kMagnitude ? layout_of(case_) : Layout{};
      GuardedTensor now(tensors_[i].type, tensors_[i].rows, tensors_[i].columns, layout);
      DORAJIT_TRY(device.download(now.bytes.data(), tensors_[i].buffer->data(), now.bytes.size()));
      if (i < kNorm && now.bytes != tensors_[i].bytes) wrong = "an input was written";
      const auto guard = static_cast<std::ptrdiff_t>(kGuardBytes);
      const auto is_poison = [](std::byte byte) { return byte == kPoison; };
      if (!std::all_of(now.bytes.begin(), now.bytes.begin() + guard, is_poison) ||
          !std::all_of(now.bytes.end() - guard, now.bytes.end(), is_poison)) {
        wrong = "a guard was written";
      }
      written.push_back(std::move(now));
    }
    std::vector<std::byte> after(kGuardBytes);
    DORAJIT_TRY(device.download(
        after.data(), workspace_->data() + (workspace_->size() - kGuardBytes), kGuardBytes));
    if (std::ranges::any_of(after, [](std::byte byte) { return byte != kPoison; })) {
      wrong = "the workspace was overrun";
    }
    norms.clear();
    for (std::int64_t row = 0; row < case_.rows; ++row) {
      const double norm = written[kNorm].get(0, row);
      norms.push_back(std::isnan(norm) ? std::numeric_limits<double>::infinity() : norm);
      if (wrong.empty()) wrong = why_wrong(written, row);
    }
    return wrong;
  }

 private:
  void fill() {
    std::mt19937 random(17);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    const auto factor = [&] {
      const double value = normal(random) * 0.1 * std::pow(10, -case_.decades * uniform(random));
      return case_.has_one_sign ? std::abs(value) : value;
    };
    tensors_[kLoraA].fill(factor);
    tensors_[kLoraB].fill([&] { return case_.has_zero_b ? 0.0 : factor(); });
    balance(random);
    if (case_.bad_a != 0) tensors_[kLoraA].set(case_.rank - 1, case_.columns / 2, case_.bad_a);
    if (case_.bad_b != 0) tensors_[kLoraB].set(1, case_.rank / 2, case_.bad_b);
    tensors_[kMagnitude].fill([&] { return 1 + normal(random) * 0.0015; });
    for (std::int64_t row = 0; row < case_.rows; ++row) {
      std::vector<double> products(static_cast<std::size_t>(case_.columns));
      std::vector<double> sizes(static_cast<std::size_t>(case_.columns));
      for (std::int64_t k = 0; k < case_.rank && case_.scale != 0; ++k) {
        const double of_row = tensors_[kLoraB].get(row, k);
        for (std::int64_t column = 0; column < case_.columns; ++column) {
          const double product = of_row * tensors_[kLoraA].get(k, column);
          products[static_cast<std::size_t>(column)] += product;
          sizes[static_cast<std::size_t>(column)] += std::abs(product);
        }
      }
      double square = 0;
      double weights = 0;
      double magnitudes = 0;
      for (std::int64_t column = 0; column < case_.columns; ++column) {
        const double product = case_.scale * products[static_cast<std::size_t>(column)];
        tensors_[kWeight].set(row, column,
                              case_.cancels ? -product * 1.001 : normal(random) * 0.02);
        const double weight = tensors_[kWeight].get(row, column);
        square += (weight + product) * (weight + product);
        weights += weight * weight;
        const double size = case_.scale * sizes[static_cast<std::size_t>(column)];
        magnitudes += size * size;
      }
      norms_.push_back(std::sqrt(square));
      units_.push_back(std::sqrt(weights) + std::sqrt(magnitudes));
    }
  }

  void balance(std::mt19937& random) {
    if (case_.balanced_bits == 0) return;
    std::uniform_int_distribution<int> bits(-case_.balanced_bits, case_.balanced_bits);
    for (std::int64_t k = 0; k < case_.rank; ++k) {
      const double power = std::ldexp(1.0, bits(random));
      for (std::int64_t column = 0; column < case_.columns; ++column) {
        tensors_[kLoraA].set(k, column, tensors_[kLoraA].get(k, column) / power);
      }
      for (std::int64_t row = 0; row < case_.rows; ++row) {
        tensors_[kLoraB].set(row, k, tensors_[kLoraB].get(row, k) * power);
      }
    }
  }

  [[nodiscard]] double bound() const {
    if (is_double_) return 1e-13;
    const bool has_halves = kernels::size_in_bytes(variant_.types[kLoraA]) == 2 &&
                            kernels::size_in_bytes(variant_.types[kLoraB]) == 2;
    return has_halves ? 5e-7 : 1e-6;
  }

  std::string why_wrong(std::vector<GuardedTensor>& written, std::int64_t row) {
    const auto at = static_cast<std::size_t>(row);
    const double norm = written[kNorm].get(0, row);
    if (!std::isfinite(norms_[at])) {
      return std::isfinite(norm) ? std::format("row {}: {} is finite", row, norm) : "";
    }
    const double error = std::abs(norm - norms_[at]) / std::max(units_[at], 1e-30);
    if (!(error <= bound())) {
      return std::format("row {}: {} instead of {}, off by {}", row, norm, norms_[at], error);
    }
    const double square = written[kSquare].get(0, row);
    const double gain = written[kGain].get(0, row);
    const double magnitude = tensors_[kMagnitude].get(0, row);
    const double root = is_double_ ? std::sqrt(square) : std::sqrt(static_cast<float>(square));
    const double divisor =
        is_double_ ? std::max(norm, 1e-12) : std::max(static_cast<float>(norm), 1e-12F);
    const double quotient = is_double_
                                ? magnitude / divisor
                                : static_cast<float>(magnitude) / static_cast<float>(divisor);
    if (norm != root) return std::format("row {}: the norm is not the root of {}", row, square);
    if (gain != quotient) return std::format("row {}: gain {} instead of {}", row, gain, quotient);
    if (written[kDivisor].get(0, row) != divisor) {
      return std::format("row {}: divisor {} instead of {}", row, written[kDivisor].get(0, row),
                         divisor);
    }
    return {};
  }

  WeightNormCase case_;
  bool is_double_ = false;
  kernels::Variant variant_{};
  std::vector<GuardedTensor> tensors_;
  std::vector<double> norms_;
  std::vector<double> units_;
  std::unique_ptr<device::Buffer> workspace_;
};

}  // namespace

CaseOutcome run_case(device::Device& device, launch::KernelCache& kernels, const Types& types,
                     const WeightNormCase& one, kernels::SpaceKind space, const Slice& slice) {
  return run_every_config(device, kernels, Call(types, one),
                          std::format("{} x {}, rank {}", one.rows, one.columns, one.rank), space,
                          slice);
}

}  // namespace dorajit::tests
