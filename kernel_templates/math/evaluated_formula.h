// How the templates call a formula.
#pragma once

#include "math/qualifiers.h"

namespace dorajit::kernels {

// A formula with intermediate values of an operand's type takes them from `round`, whose
// to<kOperand>(value) rounds to the type of that operand.
template <class F, class T, class Round>
DORAJIT_FORMULA void evaluate_formula(const F& formula, const T* matrix, const T* broadcast,
                                      T* output, const Round& round) {
  if constexpr (requires { formula(matrix, broadcast, output, round); }) {
    formula(matrix, broadcast, output, round);
  } else {
    formula(matrix, broadcast, output);
  }
}

// Replaces the sums of a channel, whose broadcast inputs are `broadcast`, by what the formula's
// finish() makes of them.
template <class F, class T>
concept FinishesSums =
    requires(const F& formula, T* sums, const T* broadcast) { formula.finish(sums, broadcast); };

template <class F, class T>
DORAJIT_FORMULA void finish_sums(const F& formula, T* sums, const T* broadcast) {
  if constexpr (FinishesSums<F, T>) formula.finish(sums, broadcast);
}

}  // namespace dorajit::kernels
