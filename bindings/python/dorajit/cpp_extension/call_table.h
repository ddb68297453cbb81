// The functions of the package's extension module, which is compiled without PyTorch, that code
// compiled against PyTorch calls. Plain types only, because each side has its own C++ standard
// library.
#pragma once

#if __has_include(<ATen/dlpack.h>)
#include <ATen/dlpack.h>
#else
#include <dlpack/dlpack.h>
#endif

#include <cstdint>

namespace dorajit::python {

struct NativeOperation;

struct CallArguments {
  NativeOperation* operation;      // as CallTable::find() returned it; it has one scalar
  const DLTensor* const* tensors;  // in the order of the operands; null for those that are left out
  double scale;
  void* stream = nullptr;     // the raw stream, on the device of the tensors
  void* workspace = nullptr;  // memory of workspace_bytes bytes, as workspace_bytes() returns
  std::int64_t workspace_bytes = 0;
};

// Outcomes of a call; the others are status codes (docs/errors.md).
inline constexpr std::int32_t kDone = 0;
inline constexpr std::int32_t kServedOtherwise = -1;  // nothing was done; Python handles the call

// Thread-safe. The caller has to compare shapes: kernels only see rows and columns.
struct CallTable {
  // The dispatch keys that a thread includes while something observes its operations
  // (eligibility.py lists them).
  const std::uint64_t* observers;
  // The operation with this name, or null. Valid for the life of the process.
  NativeOperation* (*find)(const char* name);
  // Enqueues the operation. For any other outcome than the two above, pass `error` to raise(). The
  // first call of a problem may take long, so the caller should not hold the GIL.
  std::int32_t (*run)(const CallArguments& call, void** error);
  // The size of the workspace in bytes, 0 if none is needed; negative if no kernel takes the
  // tensors.
  std::int64_t (*workspace_bytes)(const CallArguments& call);
  // The current stream of a CUDA device, for a PyTorch whose C++ interface does not return it.
  // False and a Python error if that fails. Needs the GIL.
  bool (*current_stream)(std::int32_t device_index, void** stream);
  // Sets the Python error and destroys `error`. Needs the GIL.
  void (*raise)(std::int32_t outcome, void* error);
};

inline constexpr const char* kCallTableName = "dorajit.call_table";  // name of the capsule

}  // namespace dorajit::python
