#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <format>
#include <random>

#include "kernel_templates/compose_low_rank_config.h"
#include "runtime/launch/problem.h"
#include "tests/conformance/guarded_tensor.h"
#include "tests/conformance/matrix_cases.h"

namespace dorajit::tests {
namespace {

using kernels::ElementType;
using namespace kernels;  // NOLINT: the names of the operands

constexpr std::size_t kCount = kLowRankOperands;

double rounding_of(ElementType type) {
  switch (type) {
    case ElementType::kBfloat16:
      return 0x1p-8;
    case ElementType::kFloat16:
      return 0x1p-11;
    default:
      return 0x1p-24;
  }
}

class Call {
 public:
  Call(const Types& types, const LowRankCase& one) : case_(one) {
    variant_.operation = &kernels::operation("compose_low_rank");
    std::ranges::copy(types, variant_.types.begin());
    const auto add = [&](std::int64_t rows, std::int64_t columns) {
      tensors_.emplace_back(types[tensors_.size()], rows, columns, layout_of(tensors_.size()));
    };
    add(one.rows, one.rank);
    add(one.columns, one.rank);
    add(one.rows, one.columns);
    add(1, one.columns);
    add(1, one.columns);
    add(one.rows, one.columns);
    add(one.rows, one.columns);
    fill();
  }

  [[nodiscard]] const Variant& variant() const { return variant_; }
  [[nodiscard]] Sizes sizes() const { return {case_.rows, case_.columns, case_.rank}; }

  [[nodiscard]] int vector_width(DeviceKind kind) const {
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
    is_on_cpu_ = device.info().traits.kind == DeviceKind::kCpu;
    for (GuardedTensor& tensor : tensors_) {
      DORAJIT_ASSIGN(tensor.buffer, device.allocate(tensor.bytes.size()));
    }
    return {};
  }

  // Returns what is wrong with the kernel's output; empty if nothing is. Stores the values.
  Result<std::string> run(device::Device& device, const launch::ReadyKernel& ready,
                          std::vector<double>& values) {
    KernelArguments arguments{};
    std::ranges::copy(sizes(), arguments.sizes);
    arguments.scalars[0] = case_.scale;
    for (std::size_t i = 0; i < kCount; ++i) {
      DORAJIT_TRY(device.upload(tensors_[i].buffer->data(), tensors_[i].bytes.data(),
                                tensors_[i].bytes.size()));
      if (variant_.has(i)) arguments.operands[i] = tensors_[i].at(tensors_[i].buffer->data());
    }
    if (is_in_place()) arguments.operands[kLowRankOut] = arguments.operands[kLowRankResult];
    DORAJIT_TRY(device.launch(*ready.kernel, ready.config, arguments, device.own_stream()));
    DORAJIT_TRY(device.synchronize(device.own_stream()));
    values.clear();
    std::string wrong;
    for (std::size_t i = 0; i < kCount; ++i) {
      GuardedTensor now(tensors_[i].type, tensors_[i].rows, tensors_[i].columns, layout_of(i));
      DORAJIT_TRY(device.download(now.bytes.data(), tensors_[i].buffer->data(), now.bytes.size()));
      const std::size_t written = is_in_place() && i == kLowRankResult ? kLowRankOut : i;
      const bool is_output = variant_.has(i) &&
                             (written == kLowRankOut || written == kLowRankInner) &&
                             !(is_in_place() && i == kLowRankOut);
      if (is_output) check(written, now, values, wrong);
      if (now.bytes != tensors_[i].bytes) wrong = "memory other than the outputs was written";
    }
    return wrong;
  }

 private:
  [[nodiscard]] Layout layout_of(std::size_t operand) const {
    const bool is_factor = operand == kLowRankLow || operand == kLowRankLoraB;
    return {.row_padding = case_.row_padding + (is_factor ? case_.rank_padding : 0),
            .misalignment = case_.misalignment};
  }

  [[nodiscard]] bool is_in_place() const {
    return case_.is_in_place && variant_.types[kLowRankOut] == variant_.types[kLowRankResult];
  }

  void fill() {
    std::mt19937 random(23);
    std::normal_distribution<double> normal;
    const auto factor = [&] {
      const double value = normal(random) * 0.5;
      return case_.has_one_sign ? std::abs(value) : value;
    };
    tensors_[kLowRankLow].fill(factor);
    tensors_[kLowRankLoraB].fill([&] { return case_.has_zero_b ? 0.0 : factor(); });
    tensors_[kLowRankResult].fill([&] { return normal(random); });
    tensors_[kLowRankGain].fill([&] { return case_.has_zero_b ? 1 : 1 + normal(random) * 0.0015; });
    if (variant_.has(kLowRankBias)) {
      tensors_[kLowRankBias].fill([&] { return normal(random) * 0.3; });
    }
    if (case_.bad_low != 0) {
      tensors_[kLowRankLow].set(case_.rows - 1, case_.rank / 2, case_.bad_low);
    }
    if (case_.bad_result != 0) tensors_[kLowRankResult].set(0, 0, case_.bad_result);
  }

  // The expected out and inner of one element, and the terms of their error bounds.
  struct Expected {
    double out;
    double inner;
    double terms = 0;     // the magnitudes of the terms that are added
    double products = 0;  // the magnitudes of the products, with scale and gain
  };

  // For every element, row by row: the inputs are the same for every config.
  const std::vector<Expected>& all_expected() {
    if (expected_.empty()) {
      expected_.reserve(static_cast<std::size_t>(case_.rows * case_.columns));
      for (std::int64_t row = 0; row < case_.rows; ++row) {
        for (std::int64_t column = 0; column < case_.columns; ++column) {
          expected_.push_back(make_expected(row, column));
        }
      }
    }
    return expected_;
  }

  Expected make_expected(std::int64_t row, std::int64_t column) {
    double product = 0;
    double size = 0;
    for (std::int64_t k = 0; k < case_.rank && case_.scale != 0; ++k) {
      const double one = tensors_[kLowRankLow].get(row, k) * tensors_[kLowRankLoraB].get(column, k);
      product += one;
      size += std::abs(one);
    }
    const double result = tensors_[kLowRankResult].get(row, column);
    const double gain = tensors_[kLowRankGain].get(0, column);
    const double bias = variant_.has(kLowRankBias) ? tensors_[kLowRankBias].get(0, column) : 0;
    const double base = result - bias;
    const double scaled = case_.scale * product;
    return {.out = result + ((gain - 1) * base + gain * scaled),
            .inner = scaled + base,
            .terms = std::abs(result) + std::abs(bias) + std::abs(scaled),
            .products = std::abs(case_.scale * gain) * size};
  }

  // Restores the tensor's previous elements, so that the remaining bytes can be compared.
  void check(std::size_t operand, GuardedTensor& now, std::vector<double>& values,
             std::string& wrong) {
    const double of_products = is_on_cpu_ ? 1e-6 : 2e-5;
    GuardedTensor& before =
        tensors_[operand == kLowRankOut && is_in_place() ? kLowRankResult : operand];
    auto next = all_expected().begin();
    for (std::int64_t row = 0; row < case_.rows; ++row) {
      for (std::int64_t column = 0; column < case_.columns; ++column) {
        const double found = now.get(row, column);
        values.push_back(std::isnan(found) ? 1e308 : found);
        const Expected& one = *next++;
        const double wanted = operand == kLowRankOut ? one.out : one.inner;
        const double allowed = rounding_of(now.type) * std::abs(wanted) +
                               of_products * one.products + 5 * 0x1p-24 * one.terms + 0x1p-24;
        const bool is_right = std::isfinite(wanted) ? std::abs(found - wanted) <= allowed
                              : std::isnan(wanted)  ? std::isnan(found)
                                                    : found == wanted;
        const bool has_bits = !case_.has_zero_b || operand != kLowRankOut ||
                              now.type != tensors_[kLowRankResult].type ||
                              found == tensors_[kLowRankResult].get(row, column);
        if (!is_right || !has_bits) {
          wrong = std::format("operand {}, ({}, {}): {} instead of {}", operand, row, column, found,
                              wanted);
        }
      }
    }
    const auto size = static_cast<std::size_t>(size_in_bytes(now.type));
    for (std::int64_t row = 0; row < case_.rows; ++row) {
      const std::size_t at = now.begin + static_cast<std::size_t>(row * now.stride) * size;
      std::copy_n(before.bytes.begin() + static_cast<std::ptrdiff_t>(at),
                  static_cast<std::size_t>(case_.columns) * size,
                  now.bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  LowRankCase case_;
  bool is_on_cpu_ = false;
  Variant variant_{};
  std::vector<GuardedTensor> tensors_;
  std::vector<Expected> expected_;
};

}  // namespace

CaseOutcome run_case(device::Device& device, launch::KernelCache& kernels, const Types& types,
                     const LowRankCase& one, SpaceKind space, const Slice& slice) {
  return run_every_config(device, kernels, Call(types, one),
                          std::format("{} x {}, rank {}", one.rows, one.columns, one.rank), space,
                          slice);
}

}  // namespace dorajit::tests
