// Whether a call from Python must go through PyTorch's dispatcher (autograd, modes, tracing,
// functorch), is recorded, or can be launched directly. dorajit/operations/eligibility.py defines
// the routes.
#pragma once

#include <dlpack/dlpack.h>
#include <dorajit/dorajit.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace dorajit::python {

// The problems of calls over fake tensors, which have no memory (dorajit/operations/recording.py):
// noted instead of launched, for a device that this machine need not have.
struct Recording {
  PyObject* note = nullptr;       // (problem, JSON of an own kernel or None); null: none runs
  PyObject* fake_type = nullptr;  // of the tensors that are recorded
  DLDevice device{};              // on which their kernels would run
};

// Read and written under the GIL.
inline Recording& recording() {
  static Recording one;
  return one;
}

inline bool is_fake(PyObject* tensor) {
  return recording().note != nullptr &&
         reinterpret_cast<PyObject*>(Py_TYPE(tensor)) == recording().fake_type;
}

// Whether a call with these tensors, of which some may be null, is recorded.
inline bool is_recorded(std::span<PyObject* const> tensors) {
  return recording().note != nullptr && std::ranges::any_of(tensors, [](PyObject* tensor) {
           return tensor != nullptr && is_fake(tensor);
         });
}

// Notes the problem of a call. The errors are those that the call itself would return. Throws
// error_already_set.
dorajit_status note_problem(const dorajit_operation* operation,
                            std::span<const DLTensor* const> tensors,
                            std::span<const double> scalars, const char* json,
                            dorajit_error*& error);

// Adds `who_sees`, `is_observed` and `configure_eligibility`, which has to be called first.
void add_eligibility(pybind11::module_& module);

// The observer of a call: a mode, tracer, transform or subclass (kSomebody); none (kNobody), so
// that the call is one launch and nothing else; or only autograd, which needs a node (kAutograd).
enum Seen : int { kSomebody = 0, kNobody = 1, kAutograd = 2 };

// Whether the type is exactly torch.Tensor or torch.nn.Parameter, not a subclass of them.
bool is_plain(PyObject* tensor);

// A Seen value for an eager call with these tensors and scalars; kSomebody also if a tensor is not
// plain or a scalar is not a float. Negative if a Python error is set.
int who_sees(std::span<PyObject* const> tensors, std::span<PyObject* const> scalars);

}  // namespace dorajit::python
