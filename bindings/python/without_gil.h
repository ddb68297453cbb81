// Runs native code without the GIL.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace dorajit::python {

// Runs `body`, which must not throw, without the GIL, and returns its result.
//
// If the interpreter has been finalized meanwhile, Python ends a thread that asks for the GIL by
// unwinding its stack. That would run destructors without the GIL, or end the process. Such a
// thread is stopped here instead, as Python 3.14 does.
template <class Body>
auto without_gil(const Body& body) {
  struct StopIfUnwound {
    bool is_back = false;
    ~StopIfUnwound() {
      while (!is_back) ::pause();
    }
  };
  PyThreadState* const state = PyEval_SaveThread();
  const auto result = body();
  StopIfUnwound guard;
  PyEval_RestoreThread(state);
  guard.is_back = true;
  return result;
}

}  // namespace dorajit::python
