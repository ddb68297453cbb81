// The CPU kernel of compose_low_rank that the library holds: for every mix of element types, which
// are looked up at run time.
#pragma once

#include "kernel_templates/builtin_operands.h"
#include "kernel_templates/cpu/compose_low_rank.h"

namespace dorajit::kernels {

inline constexpr int kBuiltinLowRankRows = 64;

struct BuiltinComposeLowRank {
  using Operands = UntypedOperands<float>;

  static void run(const Variant& variant, const KernelArguments& arguments, long long first,
                  long long last) {
    ComposeLowRankPrograms<Operands, kBuiltinLowRankRows, kPackBytes>::run(Operands{&variant},
                                                                           arguments, first, last);
  }

#ifdef __x86_64__
  // The library is compiled for any x86-64, where a fused multiply-add is a call of libm. What
  // ComposeLowRankPrograms calls is inlined here, and so compiled for this target.
  __attribute__((target("avx2,fma"))) static void run_avx2(const Variant& variant,
                                                           const KernelArguments& arguments,
                                                           long long first, long long last) {
    ComposeLowRankPrograms<Operands, kBuiltinLowRankRows, 32>::run(Operands{&variant}, arguments,
                                                                   first, last);
  }
#endif

  static BuiltinKernel kernel(const Variant&) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {.run = run_avx2};
#endif
    return {.run = run};
  }
};

}  // namespace dorajit::kernels
