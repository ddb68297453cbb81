// The built-in CPU kernel of weight_norm: for every mix of element types, which are looked up at
// run time.
#pragma once

#include "kernel_templates/builtin_operands.h"
#include "kernel_templates/cpu/weight_norm.h"

namespace dorajit::kernels {

inline constexpr WeightNormConfig kBuiltinWeightNorm{.rows = 64};

// The counterpart of TypedNormOperands.
template <class T>
struct UntypedNormOperands : UntypedOperands<T> {
  [[nodiscard]] T round_to_magnitude(T value) const {
    const ElementType magnitude = this->type(kNormMagnitude);
    alignas(8) char rounded[8];
    narrow(magnitude, &value, rounded, 1);
    widen(magnitude, rounded, &value, 1);
    return value;
  }
};

template <class T>
struct BuiltinWeightNorm {
  using Operands = UntypedNormOperands<T>;

  static void run(const Variant& variant, const KernelArguments& arguments, long long first,
                  long long last) {
    WeightNormPrograms<Operands, kBuiltinWeightNorm.rows, kPackBytes>::run(Operands{{&variant}},
                                                                           arguments, first, last);
  }

#ifdef __x86_64__
  // The library is compiled for any x86-64, where a fused multiply-add is a call of libm. All
  // functions that WeightNormPrograms calls are inlined here and therefore compiled for this
  // target.
  __attribute__((target("avx2,fma"))) static void run_avx2(const Variant& variant,
                                                           const KernelArguments& arguments,
                                                           long long first, long long last) {
    WeightNormPrograms<Operands, kBuiltinWeightNorm.rows, 32>::run(Operands{{&variant}}, arguments,
                                                                   first, last);
  }
#endif

  static BuiltinKernel kernel() {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {.run = run_avx2};
#endif
    return {.run = run};
  }
};

inline BuiltinKernel builtin_weight_norm(const Variant& variant) {
  return compute_type(variant) == ElementType::kFloat64 ? BuiltinWeightNorm<double>::kernel()
                                                        : BuiltinWeightNorm<float>::kernel();
}

}  // namespace dorajit::kernels
