#include "tests/conformance/op_case.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <format>
#include <utility>

#include "kernel_templates/config.h"
#include "kernel_templates/partial_sums.h"
#include "runtime/launch/problem.h"
#include "tests/conformance/plain_numbers.h"
#include "tests/conformance/plain_operations.h"

namespace dorajit::tests {
namespace {

using kernels::Broadcast;
using kernels::ElementType;
using kernels::OperandRole;

constexpr int kWorkspaceFill = 0x5A;
// Keeps the workspace aligned to 16 bytes, but no more.
constexpr std::size_t kWorkspaceGuard = 272;

bool is_matrix(const kernels::Variant& variant, std::size_t operand) {
  return variant.operation->operands[operand].shape.is_matrix();
}

std::int64_t channels_of(const kernels::Variant& variant, const CaseSpec& spec) {
  return variant.broadcast == Broadcast::kPerRow ? spec.channels : spec.cols;
}

TensorShape shape_of(const kernels::Variant& variant, const CaseSpec& spec, std::size_t operand) {
  const OperandLayout& layout = spec.layouts[operand];
  if (!is_matrix(variant, operand)) {
    return {.rows = 1, .cols = channels_of(variant, spec), .misalignment = layout.misalignment};
  }
  return {.rows = spec.rows,
          .cols = spec.cols,
          .row_padding = layout.row_padding,
          .misalignment = layout.misalignment};
}

}  // namespace

CaseSpec& CaseSpec::laid_out(std::int64_t row_padding, int misalignment) {
  layouts.fill({.row_padding = row_padding, .misalignment = misalignment});
  return *this;
}

std::string to_text(const CaseSpec& spec) {
  std::string layouts;
  for (const OperandLayout& layout : spec.layouts) {
    layouts += std::format(" {}+{}", layout.misalignment, layout.row_padding);
  }
  return std::format("{} x {}, {} channels along the rows, layouts{}, scale {}, seed {}", spec.rows,
                     spec.cols, spec.channels, layouts, spec.scale, spec.seed);
}

int vector_width(const kernels::Variant& variant, const CaseSpec& spec, kernels::DeviceKind kind) {
  std::vector<launch::TensorView> views;
  for (std::size_t i = 0; i < variant.operation->operands.size(); ++i) {
    const TensorShape shape = shape_of(variant, spec, i);
    const ElementType type = variant.types[i];
    // Device buffers start on 256-byte boundaries, so the misalignment alone determines the
    // alignment.
    const auto address = static_cast<std::uintptr_t>(shape.misalignment) *
                         static_cast<std::uintptr_t>(kernels::size_in_bytes(type));
    views.push_back({.data = std::bit_cast<void*>(address),
                     .type = type,
                     .device = {.kind = kind, .ordinal = 0},
                     .rows = shape.rows,
                     .cols = shape.cols,
                     .row_stride = shape.cols + shape.row_padding});
  }
  return launch::make_problem(variant, {}, views).vector_width;
}

OpCase::OpCase(const kernels::Variant& variant, const CaseSpec& spec)
    : variant_(variant), spec_(spec) {
  const auto& operands = variant.operation->operands;
  std::mt19937 random(spec.seed);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const TensorShape shape = shape_of(variant, spec, i);
    tensors_.emplace_back(variant.types[i], shape);
    const bool is_output = operands[i].role == OperandRole::kOutput;
    expected_.emplace_back(is_output ? variant.types[i] : ElementType::kAbsent,
                           TensorShape{.rows = shape.rows, .cols = shape.cols});
    if (is_output || !variant.has(i)) continue;
    tensors_.back().fill_random(random, is_matrix(variant_, i) ? spec.matrices : spec.gains);
  }
  if (kernels::compute_type(variant) == ElementType::kFloat64) {
    evaluate<double>();
  } else {
    evaluate<float>();
  }
}

std::size_t OpCase::workspace_bytes() const {
  if (!variant_.has_sum()) return 0;
  return static_cast<std::size_t>(kernels::sum_workspace_bytes(
      variant_.broadcast, spec_.rows, spec_.cols, channels_of(variant_, spec_),
      std::int64_t{variant_.operation->num_sums()} *
          kernels::size_in_bytes(kernels::compute_type(variant_))));
}

template <class T>
T OpCase::value(std::size_t operand, std::int64_t row, std::int64_t col) const {
  const HostTensor& tensor = tensors_[operand];
  if (tensor.type() == ElementType::kAbsent) return T(0);
  if (!is_matrix(variant_, operand)) {
    col = variant_.broadcast == Broadcast::kPerRow ? row % spec_.channels : col;
    row = 0;
  }
  return static_cast<T>(plain_decode(tensor.type(), tensor.bits(row, col)));
}

template <class T>
void OpCase::evaluate() {
  const auto& operands = variant_.operation->operands;
  const auto first_output = static_cast<std::size_t>(
      std::ranges::find(operands, OperandRole::kOutput, &kernels::Operand::role) -
      operands.begin());
  const auto keep = [&](std::size_t output, std::int64_t row, std::int64_t col, T value) {
    const ElementType type = variant_.types[output];
    const std::uint64_t bits = plain_encode(type, static_cast<double>(value));
    expected_[output].set_bits(row, col, canonical_bits(type, bits));
  };
  std::array<std::vector<T>, 2> terms;  // of each sum
  const auto round = [&](std::size_t operand, T value) {
    const ElementType type = variant_.types[operand];
    return static_cast<T>(plain_decode(type, plain_encode(type, static_cast<double>(value))));
  };
  for (std::int64_t row = 0; row < spec_.rows; ++row) {
    for (std::int64_t col = 0; col < spec_.cols; ++col) {
      PlainInputs<T> inputs{};
      for (std::size_t i = 0; i < first_output; ++i) inputs[i] = value<T>(i, row, col);
      const PlainOutputs<T> made =
          plain_evaluate<T>(variant_.operation->name, inputs, spec_.scale, round);
      for (std::size_t i = first_output; i < operands.size(); ++i) {
        if (variant_.has(i) && is_matrix(variant_, i))
          keep(i, row, col, made.stored[i - first_output]);
      }
      for (std::size_t s = 0; s < terms.size(); ++s) terms[s].push_back(made.terms[s]);
    }
  }
  if (!variant_.has_sum()) return;
  const auto first_sum = static_cast<std::size_t>(variant_.operation->sum_operand);
  for (std::size_t sum = first_sum; sum < operands.size(); ++sum) {
    std::int64_t channel = 0;
    for (const T total : plain_sums(terms[sum - first_sum], spec_.rows, spec_.cols,
                                    channels_of(variant_, spec_), variant_.broadcast)) {
      PlainInputs<T> inputs{};
      for (std::size_t i = 0; i < first_output; ++i) {
        if (!is_matrix(variant_, i)) inputs[i] = value<T>(i, channel, channel);
      }
      keep(sum, 0, channel,
           plain_total<T>(variant_.operation->name, sum - first_sum, total, inputs));
      ++channel;
    }
  }
}

Status OpCase::upload(device::Device& device, OpBuffers& buffers) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (buffers.is_current[i] || !variant_.has(i)) continue;
    const auto& bytes = tensors_[i].bytes();
    if (buffers.memory[i] == nullptr) {
      DORAJIT_ASSIGN(buffers.memory[i], device.allocate(bytes.size()));
    }
    DORAJIT_TRY(device.upload(buffers.memory[i]->data(), bytes.data(), bytes.size()));
    buffers.is_current[i] = true;
  }
  if (workspace_bytes() == 0) return {};
  if (buffers.workspace == nullptr) {
    DORAJIT_ASSIGN(buffers.workspace, device.allocate(workspace_bytes() + 2 * kWorkspaceGuard));
  }
  return device.fill(buffers.workspace->data(), kWorkspaceFill, buffers.workspace->size());
}

Status OpCase::launch(device::Device& device, const launch::ReadyKernel& kernel,
                      const Placement& placement, OpBuffers& buffers) const {
  DORAJIT_TRY(upload(device, buffers));
  kernels::KernelArguments arguments{};
  arguments.sizes[kernels::kRows] = spec_.rows;
  arguments.sizes[kernels::kCols] = spec_.cols;
  arguments.sizes[kernels::kChannels] = channels_of(variant_, spec_);
  arguments.scalars[0] = spec_.scale;
  if (workspace_bytes() > 0) arguments.workspace = buffers.workspace->data() + kWorkspaceGuard;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!variant_.has(i)) continue;
    const std::size_t at = placement.over[i].value_or(i);
    arguments.operands[i] = tensors_[at].argument_at(buffers.memory[at]->data());
    if (placement.output_at(variant_, at)) buffers.is_current[at] = false;
  }
  DORAJIT_TRY(device.launch(*kernel.kernel, kernel.config, arguments, device.own_stream()));
  return device.synchronize(device.own_stream());
}

std::string OpCase::compare(std::size_t operand, std::size_t output, HostTensor result) const {
  const auto& operands = variant_.operation->operands;
  const HostTensor& before = tensors_[operand];
  const HostTensor& expected = expected_[output];
  for (std::int64_t row = 0; row < result.shape().rows; ++row) {
    const auto bytes = result.row(row);
    const bool is_same = std::memcmp(bytes.data(), expected.row(row).data(), bytes.size()) == 0;
    for (std::int64_t col = 0; !is_same && col < result.shape().cols; ++col) {
      const std::uint64_t want = expected.bits(row, col);
      const std::uint64_t got = result.bits(row, col);
      if (got != want && canonical_bits(result.type(), got) != want) {
        return std::format("`{}` at ({}, {}) is {:#x}, not {:#x}", operands[output].name, row, col,
                           got, want);
      }
    }
    std::memcpy(bytes.data(), before.row(row).data(), bytes.size());
  }
  if (result.bytes() == before.bytes()) return {};
  return std::format("`{}` was written outside its rows", operands[output].name);
}

Result<std::string> OpCase::check(device::Device& device, const Placement& placement,
                                  const OpBuffers& buffers) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!variant_.has(i) || placement.over[i]) continue;
    HostTensor result = tensors_[i];
    DORAJIT_TRY(
        device.download(result.bytes().data(), buffers.memory[i]->data(), result.bytes().size()));
    if (const auto output = placement.output_at(variant_, i)) {
      std::string failure = compare(i, *output, std::move(result));
      if (!failure.empty()) return failure;
    } else if (result.bytes() != tensors_[i].bytes()) {
      return std::format("`{}` was written", variant_.operation->operands[i].name);
    }
  }
  if (buffers.workspace == nullptr) return std::string();
  std::vector<std::byte> workspace(buffers.workspace->size());
  DORAJIT_TRY(device.download(workspace.data(), buffers.workspace->data(), workspace.size()));
  const auto begin = workspace.begin() + kWorkspaceGuard;
  std::fill(begin, begin + static_cast<std::ptrdiff_t>(workspace_bytes()),
            std::byte{kWorkspaceFill});
  const bool is_intact = std::ranges::count(workspace, std::byte{kWorkspaceFill}) ==
                         static_cast<std::ptrdiff_t>(workspace.size());
  return is_intact ? std::string() : std::string("memory beside the workspace was written");
}

std::string OpCase::run(device::Device& device, const launch::ReadyKernel& kernel,
                        const Placement& placement, OpBuffers& buffers) const {
  const auto failure = [&]() -> Result<std::string> {
    DORAJIT_TRY(launch(device, kernel, placement, buffers));
    return check(device, placement, buffers);
  }();
  if (failure && failure->empty()) return {};
  return std::format("{} with {}, {}, {}: {}", to_text(variant_), to_text(kernel.config),
                     to_text(variant_, placement), to_text(spec_),
                     failure ? *failure : failure.error().message);
}

}  // namespace dorajit::tests
