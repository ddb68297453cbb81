// What a dorajit_engine is.
#pragma once

#include <atomic>
#include <utility>

#include "bindings/composition.h"
#include "dorajit/dorajit.h"
#include "runtime/base/work_in_progress.h"

// Thread-safe. In a child that was forked while another thread made something ready, whose locks
// nobody gives back there, an engine of the same settings takes the place of the first.
struct dorajit_engine {
 public:
  dorajit_engine(dorajit::Settings settings, dorajit::bindings::Composition composition)
      : settings_(std::move(settings)), made_(new Made{.composition = std::move(composition)}) {}
  ~dorajit_engine();
  dorajit_engine(const dorajit_engine&) = delete;
  dorajit_engine& operator=(const dorajit_engine&) = delete;

  dorajit::Result<dorajit::Engine*> engine() {
    const Made* const made = made_.load(std::memory_order_acquire);
    if (made->is_whole()) return made->composition.engine.get();
    return renew();
  }

  // Of the engine that is there, whole or not.
  [[nodiscard]] const dorajit::Statistics& statistics() const {
    return made_.load(std::memory_order_acquire)->composition.engine->statistics();
  }

 private:
  struct Made {
    [[nodiscard]] bool is_whole() const {
      return losses == dorajit::losses_to_fork(dorajit::Work::kPreparing);
    }

    int losses = dorajit::losses_to_fork(dorajit::Work::kPreparing);
    dorajit::bindings::Composition composition;
  };

  dorajit::Result<dorajit::Engine*> renew();

  const dorajit::Settings settings_;
  std::atomic<Made*> made_;  // owned, if it is whole; its locks cannot be destroyed otherwise
};
