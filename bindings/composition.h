// The one place where concrete types are wired together.
#pragma once

#include <memory>

#include "cache/trusted_directory.h"
#include "cache/tuning_store.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"
#include "runtime/engine.h"

namespace dorajit::bindings {

struct Composition {
  std::shared_ptr<cache::TuningStore> store;
  std::unique_ptr<Engine> engine;
};

// Whose files an engine of these settings uses: those of its cache folder, and those that came with
// the library, which whoever owns the library may own as well.
cache::Trust trust_of(const Settings& settings);
cache::Trust overlay_trust_of(const Settings& settings);

// An engine with artifacts and tuning database under settings.cache_dir. Never fails: what cannot
// be kept on disk is said once and kept in memory. settings.locked_path is for applications and
// changes nothing here.
Composition compose_engine(const Settings& settings);

// The same for an application, which may be held to a lock file: kIoError when settings.locked_path
// cannot be read.
Result<Composition> compose_application_engine(const Settings& settings);

}  // namespace dorajit::bindings
