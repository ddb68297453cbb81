// The CPU kernels that the library holds, for machines without a compiler.
#include <array>
#include <utility>

#include "kernel_templates/cpu/elementwise.h"
#include "kernel_templates/math/compose.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {
namespace {

constexpr Config kBuiltinConfig{.block_size = 4096,
                                .num_warps = 1,
                                .rows_per_program = 1,
                                .vector_width = 1,
                                .unroll = 1,
                                .cache_policy = CachePolicy::kDefault};

template <ElementType kLora, ElementType kBase, ElementType kGain, ElementType kOut>
void compose(const KernelArguments* arguments, long long first_program, long long last_program) {
  ElementwiseKernel<Compose, kBuiltinConfig, kLora, kBase, kGain, kOut>::run(
      *arguments, first_program, last_program);
}

constexpr std::size_t kFloatTypes = 3;  // every type but f64
constexpr std::size_t kComposeMixes = kFloatTypes * kFloatTypes * kFloatTypes * kFloatTypes;

constexpr ElementType type_at(std::size_t code, std::size_t operand) {
  for (std::size_t i = 0; i < operand; ++i) code /= kFloatTypes;
  return static_cast<ElementType>(code % kFloatTypes);
}

template <std::size_t... kCodes>
constexpr std::array<CpuFunction, kComposeMixes> make_compose_table(
    std::index_sequence<kCodes...>) {
  return {
      compose<type_at(kCodes, 0), type_at(kCodes, 1), type_at(kCodes, 2), type_at(kCodes, 3)>...};
}

constexpr auto kComposeTable = make_compose_table(std::make_index_sequence<kComposeMixes>{});

}  // namespace

CpuFunction builtin_cpu_kernel(const Variant& variant) {
  if (variant.op != Op::kCompose || !is_supported(variant)) return nullptr;
  if (variant.types[0] == ElementType::kFloat64) {
    using enum ElementType;
    return compose<kFloat64, kFloat64, kFloat64, kFloat64>;
  }
  std::size_t code = 0;
  for (std::size_t operand = 4; operand-- > 0;) {
    code = code * kFloatTypes + static_cast<std::size_t>(variant.types[operand]);
  }
  return kComposeTable[code];
}

Config builtin_cpu_config() { return kBuiltinConfig; }

}  // namespace dorajit::kernels
