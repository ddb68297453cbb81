// Calls of the library from Python: without the GIL, counted, and with Python exceptions for its
// errors.
#pragma once

#include <Python.h>
#include <dorajit/dorajit.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

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

// The engines of this process: one per tuning policy, created when first used.
//
// Thread-safe. An engine is never destroyed: at the end of a process, threads and CUDA graphs may
// still use it while destructors run.
class Engines {
 public:
  // The engine of the current policy. The first call reads files and the environment, so the caller
  // must not hold the GIL.
  dorajit_status current(dorajit_engine** engine, dorajit_error** error);

  // Sets the policy and returns the previous one.
  std::int32_t exchange_policy(std::int32_t policy) { return policy_.exchange(policy); }

  // The engines that exist by now.
  [[nodiscard]] std::vector<const dorajit_engine*> created() const;

 private:
  static constexpr std::size_t kPolicies = 3;

  std::atomic<std::int32_t> policy_{DORAJIT_TUNE_FROM_ENVIRONMENT};
  std::array<std::atomic<dorajit_engine*>, kPolicies> engines_{};
};

Engines& engines();

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
