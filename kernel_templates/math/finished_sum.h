// The output of a sum: the sum itself, or what the formula's finish() makes of it.
#pragma once

#include "math/qualifiers.h"

namespace dorajit::kernels {

template <class F, class T>
concept FinishesSums =
    requires(const F& formula, T sum, const T* broadcast) { formula.finish(sum, broadcast); };

// `broadcast` holds the broadcast inputs of the channel.
template <class F, class T>
DORAJIT_FORMULA T finished_sum(const F& formula, T sum, const T* broadcast) {
  if constexpr (FinishesSums<F, T>) return formula.finish(sum, broadcast);
  return sum;
}

}  // namespace dorajit::kernels
