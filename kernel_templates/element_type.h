// Element types of kernel operands. Shared by host and device code; includes nothing.
#pragma once

namespace dorajit::kernels {

enum class ElementType : int {
  kFloat32 = 0,
  kBfloat16 = 1,
  kFloat16 = 2,
  kFloat64 = 3,
  kAbsent = 4,  // the operand is omitted: neither read nor written
};

inline constexpr int kNumElementTypes = 4;  // without kAbsent

constexpr int size_in_bytes(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return 4;
    case ElementType::kBfloat16:
    case ElementType::kFloat16:
      return 2;
    case ElementType::kFloat64:
      return 8;
    case ElementType::kAbsent:
      return 0;
  }
  return 0;
}

// Arithmetic is done in fp64 when any operand is fp64, else in fp32.
template <bool kIsDouble>
struct SelectComputeType {
  using Type = float;
};
template <>
struct SelectComputeType<true> {
  using Type = double;
};
template <ElementType... kTypes>
using ComputeType = typename SelectComputeType<((kTypes == ElementType::kFloat64) || ...)>::Type;

}  // namespace dorajit::kernels
