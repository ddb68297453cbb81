// Run-time arguments of every kernel. Shared by host and device code; includes nothing.
#pragma once

namespace dorajit::kernels {

// The dimensions of an operation that is defined by a formula, as indices into its sizes.
inline constexpr int kRows = 0;
inline constexpr int kCols = 1;
inline constexpr int kChannels = 2;  // elements of a broadcast operand or a sum; see broadcast.h

inline constexpr int kMaxOperands = 12;
inline constexpr int kMaxScalars = 2;
inline constexpr int kMaxDimensions = 3;
inline constexpr int kThreadsPerWarp = 32;

struct OperandArgument {
  void* data;            // first element
  long long row_stride;  // in elements; 0 for operands without rows
};

// Passed by value to CUDA kernels and by pointer to CPU kernels. Operands are in the order of the
// registry: inputs before outputs.
struct KernelArguments {
  long long sizes[kMaxDimensions];  // in the order of the operation's dimensions
  void* workspace;                  // partial sums (partial_sums.h); null if there are none
  double scalars[kMaxScalars];
  OperandArgument operands[kMaxOperands];
};

static_assert(sizeof(OperandArgument) == 16, "host and device must agree on this layout");
static_assert(sizeof(KernelArguments) == 48 + 16 * kMaxOperands,
              "host and device must agree on this layout");

}  // namespace dorajit::kernels
