// Calls of the library from Python: without the GIL, and counted.
#pragma once

#include <dorajit/dorajit.h>
#include <pybind11/pybind11.h>

#include "bindings/python/engines.h"
#include "bindings/python/native_error.h"
#include "bindings/python/without_gil.h"

namespace dorajit::python {

// Runs `call(engine, error)`. Releases the GIL for the call, because the first call of a problem
// takes long and other threads may need the GIL.
template <class Call>
dorajit_status try_to_run(const Call& call, dorajit_error*& error) {
  return without_gil([&] {
    dorajit_engine* engine = nullptr;
    const dorajit_status created = engines().current(&engine, &error);
    return created == DORAJIT_OK ? call(engine, &error) : created;
  });
}

// As try_to_run; raises its error.
template <class Call>
void run(const Call& call) {
  check([&](dorajit_error** error) { return try_to_run(call, *error); });
}

// Whether a call with this error may succeed with other views of its tensors, or in PyTorch.
inline bool may_be_served_otherwise(dorajit_status status) {
  switch (status) {
    case DORAJIT_INVALID_ARGUMENT:
    case DORAJIT_UNSUPPORTED:
    case DORAJIT_WRONG_DEVICE:
    case DORAJIT_NO_DRIVER:
    case DORAJIT_NO_COMPILER:
      return true;
    default:
      return false;
  }
}

// What calls of a problem launch by now.
inline pybind11::dict described(const dorajit_explanation& plan) {
  using pybind11::arg;
  return pybind11::dict(arg("problem") = plan.problem, arg("config") = plan.config,
                        arg("source") = plan.source, arg("fingerprint") = plan.fingerprint,
                        arg("renewals") = plan.renewals);
}

}  // namespace dorajit::python
