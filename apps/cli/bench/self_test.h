// A small composition on a device, checked bit for bit.
#pragma once

#include "runtime/base/error.h"
#include "runtime/engine.h"

namespace dorajit::cli {

// Runs the engine as a caller would, on aligned and on ragged data, and compares the outputs with
// the host reference. kInternal when a bit is wrong.
Status run_self_test(Engine& engine, const launch::DeviceId& id);

}  // namespace dorajit::cli
