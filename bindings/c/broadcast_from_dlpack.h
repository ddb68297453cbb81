// Along which dimension of a matrix the channels of a broadcast tensor lie.
#pragma once

#include <dlpack/dlpack.h>

#include <string_view>

#include "kernel_templates/broadcast.h"
#include "runtime/base/error.h"

namespace dorajit::bindings {

struct ChannelLayout {
  kernels::Broadcast broadcast = kernels::Broadcast::kPerColumn;
  int column_dims = 1;  // dimensions of the matrix, from the last, that are its columns

  friend bool operator==(const ChannelLayout&, const ChannelLayout&) = default;
};

// What the shapes of a matrix and of a tensor that is broadcast over it say, aligned at their last
// dimensions as NumPy and PyTorch do. Tensors of one dimension, and those whose only dimension of
// more than one element is the last, are per column; [1, C, 1, 1] and the like are per row, where
// the matrix has C elements along that dimension. Sizes per column, and shapes that are wrong by
// themselves, are left for later checks, which name them. The first [R, 1] over [R, R] of a process
// logs a warning.
Result<ChannelLayout> channel_layout(std::string_view function, std::string_view argument,
                                     const DLTensor& matrix, const DLTensor& broadcast);

}  // namespace dorajit::bindings
