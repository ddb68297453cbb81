// Converts a caller's dorajit_engine_options to settings.
#pragma once

#include "dorajit/dorajit.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"

namespace dorajit::bindings {

// The settings of this process's environment, overridden by `options`, which may be null.
Result<Settings> settings_from_options(const dorajit_engine_options* options);

}  // namespace dorajit::bindings
