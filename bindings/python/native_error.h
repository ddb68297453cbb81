// Errors of the C interface as Python exceptions.
#pragma once

#include <dorajit/dorajit.h>
#include <pybind11/pybind11.h>

#include <string>

namespace dorajit::python {

// Called with (status, message, log), returns the exception to raise. Never dropped.
void set_exception_factory(const pybind11::function& factory);

// Throws error_already_set for a failure, and destroys the error. Needs the GIL. Not for
// `check(call(..., &error), error)`, which may read the error before the call: see the next.
void check(dorajit_status status, dorajit_error* error);

// Runs `call(dorajit_error** error)` and raises what it fails with.
template <class Call>
void check(const Call& call) {
  dorajit_error* error = nullptr;
  const dorajit_status status = call(&error);
  check(status, error);
}

// Throws what the factory makes of the message.
[[noreturn]] void raise(dorajit_status status, const std::string& message,
                        const std::string& log = {});

}  // namespace dorajit::python
