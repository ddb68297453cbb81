// Conversions of elements on the CPU, compared with separately written definitions.
#include "kernel_templates/cpu/elements.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/conformance/plain_numbers.h"

namespace dorajit::kernels {
namespace {

using tests::canonical_bits;
using tests::plain_decode;
using tests::plain_encode;

template <ElementType kType>
void check_widening() {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float widened = Element<kType>::widen(static_cast<std::uint16_t>(bits));
    const double expected = plain_decode(kType, bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(widened)) << std::hex << bits;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint64_t>(static_cast<double>(widened)),
                std::bit_cast<std::uint64_t>(expected))
          << std::hex << bits;
    }
  }
}

template <ElementType kType>
void check_narrowing(std::uint32_t bits) {
  const auto value = std::bit_cast<float>(bits);
  const std::uint64_t expected = plain_encode(kType, static_cast<double>(value));
  ASSERT_EQ(canonical_bits(kType, Element<kType>::narrow(value)), canonical_bits(kType, expected))
      << value << " " << std::hex << bits;
}

template <ElementType kType>
void check_narrowing_everywhere() {
  // A stride that is coprime to 2^32 reaches every exponent with thousands of mantissas.
  for (std::uint64_t bits = 0; bits < 0x1'0000'0000U; bits += 4099) {
    check_narrowing<kType>(static_cast<std::uint32_t>(bits));
  }
  // Around every element of the narrow type and around every tie between two.
  for (std::uint32_t element = 0; element <= 0x7fff; ++element) {
    const double low = plain_decode(kType, element);
    const double high = plain_decode(kType, element + 1);
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    for (const double center : {low, (low + high) / 2}) {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(center));
      for (const std::uint32_t nearby : {bits - 1, bits, bits + 1}) {
        if (nearby > 0xff00'0000U) continue;  // wrapped below zero
        check_narrowing<kType>(nearby);
        check_narrowing<kType>(nearby ^ 0x8000'0000U);
      }
    }
  }
}

TEST(Elements, WideningBfloat16IsExact) { check_widening<ElementType::kBfloat16>(); }
TEST(Elements, WideningFloat16IsExact) { check_widening<ElementType::kFloat16>(); }
TEST(Elements, NarrowingToBfloat16RoundsOnce) {
  check_narrowing_everywhere<ElementType::kBfloat16>();
}
TEST(Elements, NarrowingToFloat16RoundsOnce) {
  check_narrowing_everywhere<ElementType::kFloat16>();
}

}  // namespace
}  // namespace dorajit::kernels
