// The composition root: creates and connects the concrete types.
#pragma once

#include <memory>

#include "cache/database/tuning_store.h"
#include "cache/files/trusted_directory.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"
#include "runtime/engine.h"

namespace dorajit::autotune {

// An engine, and the store of its tuning results.
struct EngineParts {
  std::shared_ptr<cache::TuningStore> store;
  std::unique_ptr<Engine> engine;
};

// Whose files an engine with these settings uses: those of its cache folder, and those installed
// with the library, which the owner of the library may own too.
cache::Trust trust_of(const Settings& settings);
cache::Trust overlay_trust_of(const Settings& settings);

// An engine with artifacts and a tuning database under settings.cache_dir. Never fails: if results
// cannot be stored on disk, that is logged once and they are kept in memory. Ignores
// settings.locked_path, which is for applications. The clock is for the budgets of tuning.
EngineParts make_engine(const Settings& settings,
                        const Clock& clock = std::chrono::steady_clock::now);

// The same for an application, which may use a lock file: kIoError if settings.locked_path cannot
// be read.
Result<EngineParts> make_application_engine(const Settings& settings);

// Has this process find the own kernels that processes of this user with that cache folder have
// used, by the names that problems and results have: for programs that are told of problems by
// text. Nothing of other users is taken, also where settings.trust_group trusts a group.
void serve_kept_kernels(const Settings& settings);

}  // namespace dorajit::autotune
