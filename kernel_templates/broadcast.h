// The axis along which an operand with one element per channel is broadcast. Shared by host and
// device code; includes nothing.
#pragma once

namespace dorajit::kernels {

// Which element of a broadcast operand belongs to (row, column). A sum over the matrix collects the
// terms of each channel in the same way.
enum class Broadcast : int {
  kPerColumn = 0,  // element `column`: [C] over [..., C]
  kPerRow = 1,     // element `row % num_channels`: [1, C, 1, 1] over [N, C, H, W]; a row is H * W
};

}  // namespace dorajit::kernels
