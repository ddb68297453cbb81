// The object behind a dorajit_engine handle, and the settings that it is created with.
#pragma once

#include <utility>

#include "autotune/engine_factory.h"
#include "dorajit/dorajit.h"
#include "runtime/base/error.h"
#include "runtime/base/fork_guard.h"
#include "runtime/base/settings.h"

// Thread-safe. If a process forks while another thread is compiling, loading or tuning, the child
// inherits locks that nobody releases. In that child, a new engine with the same settings replaces
// the inherited one.
struct dorajit_engine {
 public:
  dorajit_engine(dorajit::Settings settings, dorajit::autotune::EngineParts parts)
      : settings_(std::move(settings)) {
    parts_.renew(std::move(parts));
  }
  ~dorajit_engine() { parts_.destroy(); }
  dorajit_engine(const dorajit_engine&) = delete;
  dorajit_engine& operator=(const dorajit_engine&) = delete;

  dorajit::Result<dorajit::Engine*> engine() {
    if (const auto* const found = parts_.find()) return found->engine.get();
    return renew();
  }

  // Null if the engine was lost to a fork and no call has created a new one yet.
  [[nodiscard]] const dorajit::Engine* current_engine() const {
    const auto* const found = parts_.find();
    return found != nullptr ? found->engine.get() : nullptr;
  }

  // Counts of the latest engine, even if it was lost to a fork.
  [[nodiscard]] const dorajit::Statistics& statistics() const {
    return parts_.last()->engine->statistics();
  }

 private:
  dorajit::Result<dorajit::Engine*> renew();

  const dorajit::Settings settings_;
  dorajit::ForkSafe<dorajit::autotune::EngineParts, dorajit::Work::kPreparing> parts_;
};

namespace dorajit::bindings {

// The settings of this process's environment, overridden by `options`, which may be null.
Result<Settings> settings_from_options(const dorajit_engine_options* options);

}  // namespace dorajit::bindings
