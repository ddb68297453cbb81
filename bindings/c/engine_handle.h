// What a dorajit_engine is.
#pragma once

#include <utility>

#include "autotune/engine_factory.h"
#include "dorajit/dorajit.h"
#include "runtime/base/fork_guard.h"

// Thread-safe. In a child that was forked while another thread made something ready, whose locks
// nobody gives back there, an engine of the same settings takes the place of the first.
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
    if (const auto* const whole = parts_.find()) return whole->engine.get();
    return renew();
  }

  // Null where it was lost to a fork and no call has made another one yet.
  [[nodiscard]] const dorajit::Engine* whole_engine() const {
    const auto* const whole = parts_.find();
    return whole != nullptr ? whole->engine.get() : nullptr;
  }

  // Of the engine that is there, whole or not.
  [[nodiscard]] const dorajit::Statistics& statistics() const {
    return parts_.last()->engine->statistics();
  }

 private:
  dorajit::Result<dorajit::Engine*> renew();

  const dorajit::Settings settings_;
  dorajit::ForkSafe<dorajit::autotune::EngineParts, dorajit::Work::kPreparing> parts_;
};
