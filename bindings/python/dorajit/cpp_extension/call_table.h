// What code that is compiled against PyTorch calls of the package's own extension, which is
// compiled without it. Plain types alone: each has a C++ standard library of its own.
#pragma once

#include <cstdint>

namespace dorajit::python {

struct NativeOperation;

inline constexpr int kMaxBorrowedTensors = 8;

// A dense tensor, borrowed. Types and devices are numbered as in DLPack.
struct BorrowedTensor {
  void* data;
  const std::int64_t* shape;
  const std::int64_t* strides;  // in elements
  std::int32_t dims;
  std::int32_t device_type;
  std::int32_t device_index;
  std::uint8_t type_code;
  std::uint8_t type_bits;
};

struct CallArguments {
  NativeOperation* operation;  // as CallTable::find() returned it
  // In the order of its operands, null for those that are left out.
  const BorrowedTensor* tensors[kMaxBorrowedTensors];
  std::int32_t num_tensors;
  const double* scalars;  // those that the operation has
  std::int32_t num_scalars;
  void* stream;     // raw, of the device of the tensors
  void* workspace;  // as many bytes as workspace_bytes() says
  std::int64_t workspace_bytes;
};

// Outcomes of a call besides the numbers of statuses (docs/errors.md).
inline constexpr std::int32_t kDone = 0;
inline constexpr std::int32_t kServedOtherwise = -1;  // nothing was done; Python knows a way

// Thread-safe. Shapes are for the caller to compare: kernels tell rows and columns alone.
struct CallTable {
  // The keys, among those that a thread includes, that stand for an observer of its operations
  // (eligibility.py lists them).
  const std::uint64_t* observers;
  // The operation of that name, or null. Lives as long as the process.
  NativeOperation* (*find)(const char* name);
  // Enqueues what is to be done. For any other outcome than the two above, `error` is to be given
  // to raise(). The first call of a problem may take long, so the caller should hold no GIL.
  std::int32_t (*run)(const CallArguments& call, void** error);
  // Below 0 if no kernel takes the tensors.
  std::int64_t (*workspace_bytes)(const CallArguments& call);
  // The current stream of a CUDA device, where PyTorch has none of its own to ask; false and a
  // Python error if that fails. Needs the GIL.
  bool (*current_stream)(std::int32_t device_index, void** stream);
  // Sets the Python error and destroys `error`. Needs the GIL.
  void (*raise)(std::int32_t outcome, void* error);
};

inline constexpr const char* kCallTableName = "dorajit.call_table";  // of the capsule

}  // namespace dorajit::python
