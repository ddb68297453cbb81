// Run-time arguments of every kernel. Shared by host and device code; includes nothing.
#pragma once

namespace dorajit::kernels {

inline constexpr int kMaxOperands = 8;
inline constexpr int kMaxScalars = 2;

struct OperandArgument {
  void* data;            // first element
  long long row_stride;  // in elements; 0 for operands without rows
};

// Passed by value to CUDA kernels and by pointer to CPU kernels. Operands stand in the order in
// which the registry lists them: matrix inputs, broadcast inputs, outputs.
struct KernelArguments {
  long long num_rows;
  long long num_cols;
  long long num_channels;  // elements of a broadcast operand, and of a sum; see broadcast.h
  void* workspace;         // partial sums (partial_sums.h); null where none are kept
  double scalars[kMaxScalars];
  OperandArgument operands[kMaxOperands];
};

static_assert(sizeof(OperandArgument) == 16, "host and device must agree on this layout");
static_assert(sizeof(KernelArguments) == 48 + 16 * kMaxOperands,
              "host and device must agree on this layout");

}  // namespace dorajit::kernels
