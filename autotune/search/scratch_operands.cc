#include "autotune/search/scratch_operands.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <format>

#include "autotune/search/operand_contents.h"
#include "kernel_templates/float8.h"
#include "kernel_templates/integer_types.h"
#include "kernel_templates/reference.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/template.h"

namespace dorajit::autotune {
namespace {

using kernels::ElementType;
using kernels::OperandRole;

// Between elements: a NaN of every floating-point type.
constexpr std::byte kGap{0xFF};
constexpr std::size_t kSetAlignment = 256;
constexpr int kWidestAccess = 16;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<ScratchOperands::Layout> ScratchOperands::layout_of(const kernels::Variant& variant,
                                                                const ScratchShape& shape,
                                                                kernels::DeviceKind kind) {
  const auto& operands = variant.operation->operands;
  // Below the widest alignment class, operands are misaligned on purpose, so that verification and
  // measurement use the same alignment as callers of that class.
  const bool misaligned = shape.vector_width < kernels::widest_vector(variant, kind);
  const auto moves_boxes = variant.operation->moves_boxes;
  const bool has_boxes =
      !misaligned && shape.vector_width > 1 && moves_boxes != nullptr && moves_boxes(shape.sizes);
  std::vector<Layout> layout;
  std::size_t offset = shape.guard_bytes;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!variant.has(i)) {
      layout.push_back({.offset = offset, .bytes = 0, .row_stride = 0, .elements = 0});
      continue;
    }
    const auto size = static_cast<std::size_t>(kernels::element_size(variant.types[i]));
    const std::size_t access =
        has_boxes ? kWidestAccess
                  : std::min<std::size_t>(kWidestAccess,
                                          size * static_cast<std::size_t>(shape.vector_width));
    const auto rows = static_cast<std::size_t>(kernels::num_rows(operands[i].shape, shape.sizes));
    const auto length =
        static_cast<std::size_t>(kernels::row_length(operands[i].shape, shape.sizes));
    const bool matrix = operands[i].shape.is_matrix();
    const std::size_t stride = matrix ? round_up(length, access / size) : 0;
    const bool has_strides = !operands[i].shape.strides.empty();
    const std::size_t elements = matrix ? stride * rows : length;
    const auto span =
        has_strides ? static_cast<std::size_t>(kernels::span_length(operands[i].shape, shape.sizes))
                    : elements;
    const bool is_shifted = misaligned && access < kWidestAccess && operands[i].alignment == 0;
    const bool is_misaligned = shape.misaligns && operands[i].is_unaligned;
    layout.push_back({.offset = offset + (is_misaligned ? size
                                          : is_shifted  ? access
                                                        : 0),
                      .bytes = span * size,
                      .row_stride = static_cast<long long>(stride),
                      .elements = elements});
    offset =
        round_up(layout.back().offset + layout.back().bytes, kSetAlignment) + shape.guard_bytes;
  }
  return layout;
}

std::int64_t ScratchOperands::operand_bytes(const kernels::Variant& variant,
                                            const ScratchShape& shape, kernels::DeviceKind kind) {
  const Layout last = layout_of(variant, shape, kind).back();
  return static_cast<std::int64_t>(round_up(last.offset + last.bytes, kSetAlignment) +
                                   shape.guard_bytes);
}

std::int64_t ScratchOperands::bytes_per_set(const kernels::Variant& variant,
                                            const ScratchShape& shape, kernels::DeviceKind kind) {
  const auto workspace =
      static_cast<std::size_t>(kernels::workspace_bytes(variant, kind, shape.sizes));
  return operand_bytes(variant, shape, kind) +
         static_cast<std::int64_t>(
             workspace == 0 ? 0 : round_up(workspace, kSetAlignment) + shape.guard_bytes);
}

ScratchOperands::ScratchOperands(device::Device& device, const kernels::Variant& variant,
                                 const ScratchShape& shape)
    : device_(&device),
      variant_(variant),
      shape_(shape),
      layout_(layout_of(variant, shape, device.info().traits.kind)),
      workspace_offset_(operand_bytes(variant, shape, device.info().traits.kind)),
      set_bytes_(bytes_per_set(variant, shape, device.info().traits.kind)) {
  for (std::size_t i = 0; i < layout_.size(); ++i) {
    if (variant.has(i) && variant.operation->operands[i].role == OperandRole::kOutput) {
      outputs_.push_back(i);
    }
  }
}

Result<ScratchOperands> ScratchOperands::make(device::Device& device,
                                              const kernels::Variant& variant,
                                              const ScratchShape& shape) {
  ScratchOperands scratch(device, variant, shape);
  DORAJIT_ASSIGN(scratch.buffer_,
                 device.allocate(static_cast<std::size_t>(scratch.set_bytes_ * shape.sets)));
  DORAJIT_TRY(device.fill(scratch.buffer_->data(), kPoison, scratch.buffer_->size()));
  DORAJIT_TRY(scratch.fill_inputs());
  return scratch;
}

Status ScratchOperands::fill_samples(std::size_t i, std::int64_t set, Gaps gaps) {
  DORAJIT_ASSIGN(
      const std::vector<std::byte> samples,
      random_elements(variant_, i, shape_.sizes, layout_[i].elements, shape_.seed * 31 + i));
  if (!has_strides(i)) return fill(i, set, samples);
  const bool is_index = kernels::as_integer(variant_.types[i]) != nullptr &&
                        variant_.operation->operands[i].role == OperandRole::kInput;
  constexpr std::byte kZero{0};
  const std::span gap(gaps == Gaps::kZeros ? &kZero : &kGap, 1);
  return fill(i, set, spread(i, samples, is_index && gaps == Gaps::kUsual ? samples : gap));
}

std::vector<std::byte> ScratchOperands::spread(std::size_t i, std::span<const std::byte> elements,
                                               std::span<const std::byte> gaps) const {
  return spread_elements(variant_.operation->operands[i].shape, shape_.sizes,
                         static_cast<std::size_t>(kernels::element_size(variant_.types[i])),
                         elements, gaps);
}

Status ScratchOperands::fill(std::size_t i, std::int64_t set, std::span<const std::byte> samples) {
  const std::size_t bytes = layout_[i].bytes;
  std::byte* const target = data(set) + layout_[i].offset;
  DORAJIT_TRY(device_->upload(target, samples.data(), samples.size()));
  for (std::size_t done = samples.size(); done < bytes;) {
    const std::size_t step = std::min(done, bytes - done);
    DORAJIT_TRY(device_->copy(target + done, target, step, device_->own_stream()));
    done += step;
  }
  return {};
}

Status ScratchOperands::fill_inputs() {
  const auto& operands = variant_.operation->operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool is_read = operands[i].role == OperandRole::kInput || operands[i].is_read;
    if (is_read && variant_.has(i)) DORAJIT_TRY(fill_samples(i, 0));
  }
  // Their gaps are compared.
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].role != OperandRole::kOutput || !has_strides(i)) continue;
    DORAJIT_TRY(poison(0));
    break;
  }
  for (std::int64_t set = 1; set < shape_.sets; ++set) DORAJIT_TRY(copy(set, 0));
  return device_->synchronize(device_->own_stream());
}

Status ScratchOperands::copy(std::int64_t to, std::int64_t from) {
  return device_->copy(data(to), data(from), static_cast<std::size_t>(set_bytes_),
                       device_->own_stream());
}

kernels::LaunchArguments ScratchOperands::arguments(std::int64_t set) const {
  kernels::LaunchArguments arguments;
  arguments.set_sizes(shape_.sizes);
  arguments.workspace = data(set) + workspace_offset_;
  std::array<double, kernels::kMaxCallScalars> scalars{};
  scalars.fill(0.5);
  std::ranges::transform(variant_.operation->scalar_values, scalars.begin(),
                         &kernels::Operation::ScalarValues::tuned);
  const auto& dimensions = variant_.operation->dimensions;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i].scalar < 0) continue;
    scalars[static_cast<std::size_t>(dimensions[i].scalar)] = static_cast<double>(shape_.sizes[i]);
  }
  arguments.set_scalars(scalars);
  for (std::size_t i = 0; i < layout_.size(); ++i) {
    if (!variant_.has(i)) continue;
    arguments.operands[i] = {.data = data(set) + layout_[i].offset,
                             .row_stride = layout_[i].row_stride};
  }
  return arguments;
}

Status ScratchOperands::poison(std::int64_t set, int byte) {
  const auto& operands = variant_.operation->operands;
  for (const std::size_t i : outputs_) {
    void* const data = arguments(set).operands[i].data;
    const auto value = static_cast<std::byte>(byte);
    DORAJIT_TRY(operands[i].is_read ? fill_samples(i, set)
                : has_strides(i)
                    ? fill(i, set, spread(i, std::span(&value, 1), std::span(&kGap, 1)))
                    : device_->fill(data, byte, layout_[i].bytes));
  }
  const std::size_t workspace = workspace_bytes();
  if (workspace > 0) DORAJIT_TRY(device_->fill(arguments(set).workspace, byte, workspace));
  return {};
}

Result<std::vector<std::byte>> ScratchOperands::read_outputs(std::int64_t set) const {
  std::vector<std::byte> outputs;
  for (const std::size_t i : outputs_) {
    const std::size_t at = outputs.size();
    outputs.resize(at + layout_[i].bytes);
    DORAJIT_TRY(
        device_->download(outputs.data() + at, arguments(set).operands[i].data, layout_[i].bytes));
  }
  return outputs;
}

Result<std::string> ScratchOperands::leftovers(std::int64_t set) const {
  const auto& operands = variant_.operation->operands;
  DORAJIT_ASSIGN(const std::vector<std::byte> outputs, read_outputs(set));
  std::span<const std::byte> rest = outputs;
  std::string text;
  for (const std::size_t i : outputs_) {
    const auto size = static_cast<std::size_t>(kernels::element_size(variant_.types[i]));
    const std::size_t places = layout_[i].bytes / size;
    std::size_t left = 0;
    for (std::size_t element = 0; element < places; ++element) {
      left += std::ranges::all_of(rest.subspan(element * size, size),
                                  [](std::byte byte) { return byte == std::byte{kOtherPoison}; });
    }
    rest = rest.subspan(layout_[i].bytes);
    if (left == 0 || operands[i].is_read) continue;
    text += std::format("{}`{}`: {} of {} elements", text.empty() ? "" : ", ", operands[i].name,
                        left, layout_[i].elements);
  }
  return text;
}

Result<bool> ScratchOperands::keeps_gaps(std::int64_t set) const {
  const auto& operands = variant_.operation->operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].role != OperandRole::kOutput || !has_strides(i)) continue;
    constexpr std::byte kElement{0};
    const std::vector<std::byte> gaps = spread(i, std::span(&kElement, 1), std::span(&kGap, 1));
    std::vector<std::byte> bytes(layout_[i].bytes);
    DORAJIT_TRY(device_->download(bytes.data(), data(set) + layout_[i].offset, bytes.size()));
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      if (gaps[at % gaps.size()] == kGap && bytes[at] != kGap) return false;
    }
  }
  return true;
}

Status ScratchOperands::fill_gaps(std::int64_t set, Gaps gaps) {
  const auto& operands = variant_.operation->operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].role != OperandRole::kInput || !has_strides(i)) continue;
    DORAJIT_TRY(fill_samples(i, set, gaps));
  }
  return {};
}

Result<std::vector<std::byte>> ScratchOperands::reference_outputs(std::int64_t set) const {
  const auto& spec = *variant_.operation;
  std::vector<std::vector<std::byte>> copies(layout_.size());
  kernels::KernelArguments host = arguments(set);
  for (std::size_t i = 0; i < layout_.size(); ++i) {
    copies[i].assign(layout_[i].bytes, static_cast<std::byte>(kPoison));
    if (spec.operands[i].role == OperandRole::kInput && variant_.has(i)) {
      DORAJIT_TRY(device_->download(copies[i].data(), host.operands[i].data, layout_[i].bytes));
    }
    host.operands[i].data = copies[i].data();
  }
  spec.reference(host, variant_);
  std::vector<std::byte> outputs;
  for (const std::size_t i : outputs_) {
    outputs.insert(outputs.end(), copies[i].begin(), copies[i].end());
  }
  return outputs;
}

Result<std::vector<std::byte>> ScratchOperands::read(std::int64_t set) const {
  std::vector<std::byte> image(static_cast<std::size_t>(set_bytes_));
  DORAJIT_TRY(device_->download(image.data(), data(set), image.size()));
  return image;
}

Status ScratchOperands::restore(std::int64_t set, std::span<const std::byte> image) {
  return device_->upload(data(set), image.data(), image.size());
}

std::vector<std::byte> ScratchOperands::with_outputs(std::vector<std::byte> image,
                                                     std::span<const std::byte> outputs) const {
  for (const std::size_t i : outputs_) {
    std::ranges::copy(outputs.first(layout_[i].bytes),
                      image.begin() + static_cast<std::ptrdiff_t>(layout_[i].offset));
    outputs = outputs.subspan(layout_[i].bytes);
  }
  return image;
}

std::vector<ScratchOperands::Part> ScratchOperands::parts() const {
  std::vector<Part> parts;
  std::size_t begin = 0;  // of memory that no kernel may write
  for (const std::size_t i : outputs_) {
    const auto [offset, bytes, stride, elements] = layout_[i];
    parts.push_back({.offset = begin, .bytes = offset - begin});
    parts.push_back({.offset = offset, .bytes = bytes, .output = i});
    begin = offset + bytes;
  }
  const auto workspace = static_cast<std::size_t>(workspace_offset_);
  parts.push_back({.offset = begin, .bytes = workspace - begin});
  begin = workspace + workspace_bytes();
  parts.push_back({.offset = begin, .bytes = static_cast<std::size_t>(set_bytes_) - begin});
  return parts;
}

std::optional<ScratchOperands::Allowance> ScratchOperands::allowance(std::size_t output) const {
  const ElementType type = variant_.types[output];
  if (kernels::as_integer(type) != nullptr) return std::nullopt;
  const auto* const float8 = kernels::as_float8(type);
  const bool is_half = type == ElementType::kFloat16;
  const double step = is_half ? 0x1p-10 : type == ElementType::kBfloat16 ? 0x1p-7 : 0;
  const double smallest = is_half ? 0x1p-14 : 0;
  return Allowance{.type = type,
                   .step = float8 != nullptr ? std::ldexp(1, -float8->mantissa_bits) : step,
                   .smallest = float8 != nullptr ? std::ldexp(1, 1 - float8->bias) : smallest,
                   .tolerance = variant_.operation->tolerance};
}

double ScratchOperands::usual_size(std::size_t operand, std::span<const std::byte> bytes) const {
  const ElementType type = variant_.types[operand];
  const std::size_t count = bytes.size() / static_cast<std::size_t>(kernels::element_size(type));
  const std::size_t elements = layout_[operand].elements;  // gaps are NaNs
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double element = element_of(bytes, type, i);
    if (std::isfinite(element)) squares += std::pow(element, 2);
  }
  return elements > 0 && std::isfinite(squares) ? std::sqrt(squares / static_cast<double>(elements))
                                                : 0;
}

Result<std::vector<double>> ScratchOperands::usual_sizes(std::int64_t set) const {
  if (variant_.operation->tolerance == 0) return std::vector<double>{};
  std::vector<double> usual(layout_.size());
  for (const Part& part : parts()) {
    if (!part.output || !allowance(*part.output)) continue;
    std::vector<std::byte> bytes(part.bytes);
    DORAJIT_TRY(device_->download(bytes.data(), data(set) + part.offset, bytes.size()));
    usual[*part.output] = usual_size(*part.output, bytes);
  }
  return usual;
}

bool ScratchOperands::is_near(std::size_t operand, std::span<const std::byte> bytes,
                              std::span<const std::byte> expected) const {
  const auto allowance_of_type = allowance(operand);
  if (!allowance_of_type) return std::ranges::equal(bytes, expected);
  const auto [type, step, smallest, tolerance] = *allowance_of_type;
  // Absolute error: elements that nearly cancel have the same error as the others.
  const double usual = usual_size(operand, expected);
  const auto size = static_cast<std::size_t>(kernels::element_size(type));
  for (std::size_t i = 0; i < bytes.size() / size; ++i) {
    // NaN and infinity have no distance from themselves.
    if (std::ranges::equal(bytes.subspan(i * size, size), expected.subspan(i * size, size)))
      continue;
    const double wanted = element_of(expected, type, i);
    const double allowed =
        step * std::max(std::abs(wanted), smallest) + tolerance * std::max(std::abs(wanted), usual);
    const double distance = std::abs(element_of(bytes, type, i) - wanted);
    if (!std::isfinite(distance) || distance > allowed) return false;
  }
  return true;
}

ScratchOperands::Difference ScratchOperands::compare(std::span<const std::byte> image,
                                                     std::span<const std::byte> expected,
                                                     Closeness closeness) const {
  bool outputs_differ = false;
  for (const Part& part : parts()) {
    const auto bytes = image.subspan(part.offset, part.bytes);
    const auto wanted = expected.subspan(part.offset, part.bytes);
    if (part.output && closeness == Closeness::kWithinTolerance) {
      outputs_differ |= !is_near(*part.output, bytes, wanted);
    } else if (!std::ranges::equal(bytes, wanted)) {
      if (!part.output) return Difference::kElsewhere;
      outputs_differ = true;
    }
  }
  return outputs_differ ? Difference::kOutputs : Difference::kNone;
}

}  // namespace dorajit::autotune
