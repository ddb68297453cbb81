#include "bindings/python/native_call.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

py::handle& factory() {
  static py::handle kept;
  return kept;
}

}  // namespace

void set_exception_factory(const py::function& made_by) { factory() = made_by.inc_ref(); }

void raise(dorajit_status status, const std::string& message, const std::string& log) {
  if (!factory()) throw std::runtime_error(message);
  const py::object exception = factory()(status, message, log);
  PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
  throw py::error_already_set();
}

void check(dorajit_status status, dorajit_error* error) {
  if (status == DORAJIT_OK) return;
  const std::string message = dorajit_error_message(error);
  const std::string log = dorajit_error_log(error);
  dorajit_error_destroy(error);
  raise(status, message, log);
}

dorajit_status Engines::current(dorajit_engine** engine, dorajit_error** error) {
  const std::int32_t policy = policy_.load();
  std::atomic<dorajit_engine*>& place = engines_[static_cast<std::size_t>(policy)];
  *error = nullptr;
  *engine = place.load(std::memory_order_acquire);
  if (*engine != nullptr) return DORAJIT_OK;
  dorajit_engine_options options{};
  options.struct_size = sizeof options;
  options.tune_policy = policy;
  options.trust_device_pointers = 1;  // PyTorch knows the device of each tensor
  dorajit_engine* made = nullptr;
  const dorajit_status status = dorajit_engine_create(&options, &made, error);
  if (status != DORAJIT_OK) return status;
  // Without a lock, which could be held forever in a forked process. Another thread may have
  // created the engine meanwhile.
  if (place.compare_exchange_strong(*engine, made)) {
    *engine = made;
  } else {
    dorajit_engine_destroy(made);
  }
  return DORAJIT_OK;
}

std::vector<const dorajit_engine*> Engines::created() const {
  std::vector<const dorajit_engine*> found;
  for (const std::atomic<dorajit_engine*>& place : engines_) {
    const dorajit_engine* const engine = place.load(std::memory_order_acquire);
    if (engine != nullptr) found.push_back(engine);
  }
  return found;
}

Engines& engines() {
  static Engines* const leaked = new Engines;
  return *leaked;
}

}  // namespace dorajit::python
