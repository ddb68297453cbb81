// What a worker of the daemon does: it tunes the problems that it is sent.
#pragma once

#include "runtime/base/error.h"
#include "runtime/base/settings.h"

namespace dorajit::daemon {

// Reads requests from standard input, one a line, until it ends, and answers each on standard
// output (autotune/service/daemon/worker_process.h). The system ends the process somewhat after a
// problem has taken `seconds`, if the daemon is not there any more to do it; 0: it does not.
Status run_worker(const Settings& settings, double seconds);

}  // namespace dorajit::daemon
