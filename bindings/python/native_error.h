// Errors of the C interface as Python exceptions.
#pragma once

#include <dorajit/dorajit.h>
#include <pybind11/pybind11.h>

#include <string>

namespace dorajit::python {

// Called with (status, message, log), returns the exception to raise. Never dropped.
void set_exception_factory(const pybind11::function& factory);

// Throws error_already_set for a failure, and destroys the error. Needs the GIL.
void check(dorajit_status status, dorajit_error* error);

// Throws what the factory makes of the message.
[[noreturn]] void raise(dorajit_status status, const std::string& message,
                        const std::string& log = {});

}  // namespace dorajit::python
