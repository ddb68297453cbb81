// The settings that a caller's options stand for.
#pragma once

#include "dorajit/dorajit.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"

namespace dorajit::bindings {

// The environment of this process, overridden by `options`, which may be null.
Result<Settings> settings_from_options(const dorajit_engine_options* options);

}  // namespace dorajit::bindings
