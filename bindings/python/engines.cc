#include "bindings/python/engines.h"

namespace dorajit::python {

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

dorajit_status Engines::statistics(dorajit_statistics* total, dorajit_error** error) const {
  *total = {};
  *error = nullptr;
  for (const std::atomic<dorajit_engine*>& place : engines_) {
    const dorajit_engine* const engine = place.load(std::memory_order_acquire);
    if (engine == nullptr) continue;
    dorajit_statistics one{};
    one.struct_size = sizeof one;
    const dorajit_status status = dorajit_engine_statistics(engine, &one, error);
    if (status != DORAJIT_OK) return status;
    total->launches += one.launches;
    total->compilations += one.compilations;
    total->artifact_hits += one.artifact_hits;
    total->builtin_kernels += one.builtin_kernels;
    total->tuned_problems += one.tuned_problems;
    total->trials += one.trials;
    total->renewed_plans += one.renewed_plans;
  }
  return DORAJIT_OK;
}

dorajit_status Engines::plans(std::vector<dorajit_explanation>* found,
                              dorajit_error** error) const {
  found->clear();
  *error = nullptr;
  for (const std::atomic<dorajit_engine*>& place : engines_) {
    const dorajit_engine* const engine = place.load(std::memory_order_acquire);
    if (engine == nullptr) continue;
    for (std::int64_t i = 0;; ++i) {
      dorajit_explanation one{};
      one.struct_size = sizeof one;
      const dorajit_status status = dorajit_explain_at(engine, i, &one, error);
      if (status != DORAJIT_OK) return status;
      if (*one.problem == '\0') break;
      found->push_back(one);
    }
  }
  return DORAJIT_OK;
}

Engines& engines() {
  static Engines* const leaked = new Engines;
  return *leaked;
}

}  // namespace dorajit::python
