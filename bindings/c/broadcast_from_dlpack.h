// The dimension of a matrix along which the channels of a broadcast tensor lie.
#pragma once

#include <dlpack/dlpack.h>

#include <string_view>

#include "kernel_templates/broadcast.h"
#include "runtime/base/error.h"

namespace dorajit::bindings {

struct ChannelLayout {
  kernels::Broadcast broadcast = kernels::Broadcast::kPerColumn;
  // How many dimensions of the matrix, counted from the last, form its columns.
  int column_dims = 1;

  friend bool operator==(const ChannelLayout&, const ChannelLayout&) = default;
};

// Derives the channel layout from the shapes of a matrix and of the tensor that is broadcast over
// it. Shapes are aligned at their last dimensions, as in NumPy and PyTorch. Tensors of one
// dimension, and tensors whose only dimension of more than one element is the last, are per column.
// [1, C, 1, 1] and similar shapes are per row if the matrix has C elements along that dimension.
// Per-column sizes and shapes that are invalid on their own are reported by later checks. The first
// [R, 1] over [R, R] of a process logs a warning.
Result<ChannelLayout> channel_layout(std::string_view function, std::string_view argument,
                                     const DLTensor& matrix, const DLTensor& broadcast);

}  // namespace dorajit::bindings
