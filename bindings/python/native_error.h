// Errors of the C interface as Python exceptions.
#pragma once

#include <dorajit/dorajit.h>
#include <pybind11/pybind11.h>

#include <string>

namespace dorajit::python {

// Sets the function that makes an exception of (status, message, log). Its reference is never
// released.
void set_exception_factory(const pybind11::function& factory);

// Throws error_already_set for a failure, and destroys the error. Needs the GIL. Do not write
// `check(call(..., &error), error)`: `error` may be read before the call. Use the next function.
void check(dorajit_status status, dorajit_error* error);

// Runs `call(dorajit_error** error)` and raises its error.
template <class Call>
void check(const Call& call) {
  dorajit_error* error = nullptr;
  const dorajit_status status = call(&error);
  check(status, error);
}

// Raises the exception that the factory makes of these.
[[noreturn]] void raise(dorajit_status status, const std::string& message,
                        const std::string& log = {});

}  // namespace dorajit::python
