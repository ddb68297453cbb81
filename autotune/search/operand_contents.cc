#include "autotune/search/operand_contents.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <format>
#include <random>

#include "kernel_templates/float8.h"
#include "kernel_templates/integer_types.h"
#include "kernel_templates/reference.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/template.h"

namespace dorajit::autotune {
namespace {

// Number of distinct random elements of an operand. It is not a multiple of a row, so neighbouring
// rows differ.
constexpr std::size_t kPattern = 65521;

// Rows of an operand with strides that are made on the host, if they are long.
constexpr std::int64_t kRowsToMake = 5;

void set_element(std::span<std::byte> bytes, kernels::ElementType type, std::size_t i,
                 double value) {
  if (const auto* const float8 = kernels::as_float8(type)) {
    bytes[i] = std::byte{kernels::narrow_float8(*float8, static_cast<float>(value))};
  } else {
    const kernels::OperandArgument place{.data = bytes.data(), .row_stride = 0};
    kernels::store_element(place, type, 0, static_cast<long long>(i), value);
  }
}

}  // namespace

double element_of(std::span<const std::byte> bytes, kernels::ElementType type, std::size_t i) {
  if (const auto* const float8 = kernels::as_float8(type)) {
    return kernels::widen_float8(*float8, static_cast<unsigned char>(bytes[i]));
  }
  const kernels::OperandArgument place{.data = const_cast<std::byte*>(bytes.data()),
                                       .row_stride = 0};
  return kernels::load_element<double>(place, type, 0, static_cast<long long>(i));
}

Result<std::vector<std::byte>> random_elements(const kernels::Variant& variant, std::size_t operand,
                                               const kernels::Sizes& sizes, std::size_t count,
                                               std::uint64_t seed) {
  const kernels::ElementType type = variant.types[operand];
  const kernels::Operand& described = variant.operation->operands[operand];
  const auto size = static_cast<std::size_t>(kernels::element_size(type));
  const std::size_t distinct = std::min(count, kPattern);
  std::vector<std::byte> bytes(distinct * size);
  std::minstd_rand random(static_cast<unsigned>(seed * 2654435761U + count % 1000003U));
  if (count > 0 && kernels::as_integer(type) != nullptr) {
    const std::int64_t limit = kernels::template_of(variant).value_limit(variant, operand, sizes);
    if (limit < 1) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("{}: the limit of `{}` is not positive for {}, so that no values can "
                              "be made for it",
                              variant.operation->name, described.name,
                              kernels::to_text(*variant.operation, sizes)));
    }
    std::uniform_int_distribution<std::int64_t> below(0, limit - 1);
    for (std::size_t i = 0; i < distinct; ++i) {
      const std::int64_t value = below(random);
      // Its low bytes, on every host of an NVIDIA GPU.
      std::memcpy(bytes.data() + i * size, &value, size);
    }
    return bytes;
  }
  std::normal_distribution<double> around_zero(0.0, 1.0);
  std::normal_distribution<double> around_one(1.0, 0.0015);
  const kernels::Range range = described.range.value_or(kernels::Range{});
  std::uniform_real_distribution<double> in_range(range.least, range.most);
  for (std::size_t i = 0; i < distinct; ++i) {
    const bool is_around_one = described.samples == kernels::Samples::kAroundOne;
    const double value = described.range ? in_range(random)
                         : is_around_one ? around_one(random)
                                         : around_zero(random);
    set_element(bytes, type, i, value);
  }
  return bytes;
}

std::vector<std::byte> spread_elements(const kernels::OperandShape& shape,
                                       const kernels::Sizes& sizes, std::size_t element_size,
                                       std::span<const std::byte> elements,
                                       std::span<const std::byte> gaps) {
  std::array<std::int64_t, kernels::kMaxSizes> counts{};
  std::array<std::int64_t, kernels::kMaxSizes> strides{};
  const std::size_t rank = kernels::rank_of(shape);
  std::size_t outermost = 0;
  for (std::size_t place = 0; place < rank; ++place) {
    counts[place] = sizes[kernels::dimension_at(shape, place)];
    strides[place] = kernels::stride_at(shape, sizes, place);
    if (counts[place] > 1 && strides[place] > strides[outermost]) outermost = place;
  }
  // Rows repeat after these, and so do the bytes.
  const std::int64_t row = std::max(strides[outermost], std::int64_t{1});
  const std::int64_t rows =
      std::max(kRowsToMake, (static_cast<std::int64_t>(kPattern) + row - 1) / row);
  std::size_t bytes = static_cast<std::size_t>(kernels::span_length(shape, sizes)) * element_size;
  if (rows < counts[outermost]) {
    counts[outermost] = rows;
    bytes = std::min(bytes, static_cast<std::size_t>(rows * row) * element_size);
  }
  std::vector<std::byte> made(bytes);
  for (std::size_t at = 0; at < bytes; ++at) made[at] = gaps[at % gaps.size()];
  if (bytes == 0) return made;
  std::array<std::int64_t, kernels::kMaxSizes> index{};
  for (std::size_t element = 0;; element += element_size) {
    std::int64_t at = 0;
    for (std::size_t place = 0; place < rank; ++place) at += index[place] * strides[place];
    const std::size_t begin = static_cast<std::size_t>(at) * element_size;
    for (std::size_t byte = 0; byte < element_size && begin + byte < bytes; ++byte) {
      made[begin + byte] = elements[(element + byte) % elements.size()];
    }
    std::size_t place = rank;
    while (place > 0 && ++index[place - 1] == counts[place - 1]) index[--place] = 0;
    if (place == 0) return made;
  }
}

}  // namespace dorajit::autotune
