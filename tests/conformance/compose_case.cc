#include "tests/conformance/compose_case.h"

#include <bit>
#include <cstring>
#include <format>
#include <memory>

#include "kernel_templates/config_text.h"
#include "runtime/launch/problem.h"
#include "tests/conformance/plain_numbers.h"

namespace dorajit::tests {
namespace {

using kernels::ElementType;

// Each operation on a volatile, so that no compiler contracts or reorders what is the truth here.
template <class T>
T plain_compose(T lora, T base, T gain, T scale) {
  volatile T scaled = scale * lora;
  volatile T weight = gain - T(1);
  volatile T left = weight * base;
  volatile T right = gain * scaled;
  volatile T sum = left + right;
  return sum;
}

}  // namespace

bool allows(const kernels::Variant& variant, Placement placement) {
  switch (placement) {
    case Placement::kOutOfPlace:
      return true;
    case Placement::kInPlaceOfLora:
      return variant.types[0] == variant.types[3];
    case Placement::kInPlaceOfBase:
      return variant.types[1] == variant.types[3];
  }
  return false;
}

ComposeCase::ComposeCase(const kernels::Variant& variant, const ComposeShape& shape, double scale,
                         double special_odds, unsigned seed)
    : variant_(variant),
      shape_(shape),
      scale_(scale),
      lora_(variant.types[0], {shape.rows, shape.cols, shape.row_padding, shape.misalignment}),
      base_(variant.types[1], {shape.rows, shape.cols, shape.row_padding, shape.misalignment}),
      gain_(variant.types[2], {1, shape.cols, 0, shape.misalignment}),
      out_(variant.types[3], {shape.rows, shape.cols, shape.row_padding, shape.misalignment}) {
  std::mt19937 random(seed);
  lora_.fill_random(random, special_odds);
  base_.fill_random(random, special_odds);
  gain_.fill_random(random, special_odds);
  expected_.reserve(static_cast<std::size_t>(shape.rows * shape.cols));
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t col = 0; col < shape.cols; ++col) {
      expected_.push_back(canonical_bits(out_.type(), expected_bits(row, col)));
    }
  }
}

std::uint64_t ComposeCase::expected_bits(std::int64_t row, std::int64_t col) const {
  const double lora = plain_decode(lora_.type(), lora_.bits(row, col));
  const double base = plain_decode(base_.type(), base_.bits(row, col));
  const double gain = plain_decode(gain_.type(), gain_.bits(0, col));
  const double result = variant_.types[0] == ElementType::kFloat64
                            ? plain_compose<double>(lora, base, gain, scale_)
                            : static_cast<double>(plain_compose<float>(
                                  static_cast<float>(lora), static_cast<float>(base),
                                  static_cast<float>(gain), static_cast<float>(scale_)));
  return plain_encode(out_.type(), result);
}

int ComposeCase::vector_width(kernels::DeviceKind kind) const {
  auto view = [kind](const HostTensor& tensor) {
    // Device buffers start on 256-byte boundaries, so the offset alone decides.
    return launch::TensorView{.data = std::bit_cast<void*>(tensor.offset()),
                              .type = tensor.type(),
                              .device = {.kind = kind, .ordinal = 0},
                              .rows = tensor.shape().rows,
                              .cols = tensor.shape().cols,
                              .row_stride = tensor.row_stride()};
  };
  const launch::TensorView operands[] = {view(lora_), view(base_), view(gain_), view(out_)};
  return launch::make_problem(variant_, operands).vector_width;
}

Status ComposeCase::upload(device::Device& device, ComposeBuffers& buffers) const {
  const HostTensor* tensors[] = {&lora_, &base_, &gain_, &out_};
  for (std::size_t i = 0; i < 4; ++i) {
    if (buffers.is_current[i]) continue;
    const auto& bytes = tensors[i]->bytes();
    if (buffers.memory[i] == nullptr) {
      DORAJIT_ASSIGN(buffers.memory[i], device.allocate(bytes.size()));
    }
    DORAJIT_TRY(device.upload(buffers.memory[i]->data(), bytes.data(), bytes.size()));
    buffers.is_current[i] = true;
  }
  return {};
}

std::string ComposeCase::compare(const HostTensor& result, const HostTensor& before,
                                 const launch::ReadyKernel& kernel) const {
  HostTensor expected = before;
  for (std::int64_t row = 0; row < shape_.rows; ++row) {
    for (std::int64_t col = 0; col < shape_.cols; ++col) {
      const std::uint64_t want = expected_[static_cast<std::size_t>(row * shape_.cols + col)];
      const std::uint64_t got = canonical_bits(out_.type(), result.bits(row, col));
      if (want != got) {
        return std::format("{} with {} at ({}, {}) of {} x {}: {:#x}, not {:#x}", to_text(variant_),
                           to_text(kernel.config), row, col, shape_.rows, shape_.cols, got, want);
      }
      expected.set_bits(row, col, result.bits(row, col));
    }
  }
  if (expected.bytes() == result.bytes()) return {};
  return std::format("{} with {} wrote outside its rows", to_text(variant_),
                     to_text(kernel.config));
}

std::string ComposeCase::run(device::Device& device, const launch::ReadyKernel& kernel,
                             Placement placement, ComposeBuffers& buffers) const {
  std::size_t target = 3;
  if (placement == Placement::kInPlaceOfLora) target = 0;
  if (placement == Placement::kInPlaceOfBase) target = 1;
  const HostTensor* tensors[] = {&lora_, &base_, &gain_, &out_};
  HostTensor result = *tensors[target];
  const auto status = [&]() -> Status {
    DORAJIT_TRY(upload(device, buffers));
    kernels::KernelArguments arguments{};
    arguments.num_rows = shape_.rows;
    arguments.num_cols = shape_.cols;
    arguments.scalars[0] = scale_;
    for (std::size_t i = 0; i < 4; ++i) {
      arguments.operands[i] = tensors[i]->argument_at(buffers.memory[i]->data());
    }
    arguments.operands[3] = arguments.operands[target];
    buffers.is_current[target] = false;
    DORAJIT_TRY(device.launch(*kernel.kernel, kernel.config, arguments, device.own_stream()));
    DORAJIT_TRY(device.synchronize(device.own_stream()));
    return device.download(result.bytes().data(), buffers.memory[target]->data(),
                           result.bytes().size());
  }();
  if (!status) return status.error().message;
  return compare(result, *tensors[target], kernel);
}

}  // namespace dorajit::tests
