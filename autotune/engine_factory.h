// The one place where concrete types are wired together.
#pragma once

#include <memory>

#include "cache/database/tuning_store.h"
#include "cache/files/trusted_directory.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"
#include "runtime/engine.h"

namespace dorajit::autotune {

// An engine, and the store of the tuning results that it has.
struct EngineParts {
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
EngineParts make_engine(const Settings& settings);

// The same for an application, which may be held to a lock file: kIoError when settings.locked_path
// cannot be read.
Result<EngineParts> make_application_engine(const Settings& settings);

}  // namespace dorajit::autotune
