#include "autotune/search/random_elements.h"

#include <algorithm>
#include <cstring>
#include <format>
#include <random>

#include "kernel_templates/integer_types.h"
#include "kernel_templates/reference.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/template.h"

namespace dorajit::autotune {
namespace {

// Number of distinct random elements of an operand. It is not a multiple of a row, so neighbouring
// rows differ.
constexpr std::size_t kPattern = 65521;

}  // namespace

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
  const kernels::OperandArgument target{.data = bytes.data(), .row_stride = 0};
  for (std::size_t i = 0; i < distinct; ++i) {
    const bool is_around_one = described.samples == kernels::Samples::kAroundOne;
    const double value = described.range ? in_range(random)
                         : is_around_one ? around_one(random)
                                         : around_zero(random);
    kernels::store_element(target, type, 0, static_cast<long long>(i), value);
  }
  return bytes;
}

}  // namespace dorajit::autotune
