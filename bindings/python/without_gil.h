// Native work that other Python threads need not wait for.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace dorajit::python {

// Runs `body`, which must not throw, without the GIL, and returns what it returns.
//
// Where the interpreter has ended meanwhile, Python ends a thread that asks for the GIL by
// unwinding its stack, and what is on it would be destroyed without the GIL, or end the process.
// Such a thread stops here instead, as Python 3.14 has it.
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
