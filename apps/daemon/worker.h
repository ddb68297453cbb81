// A worker of the daemon, which tunes the problems that it is sent.
#pragma once

#include "runtime/base/error.h"
#include "runtime/base/settings.h"

namespace dorajit::daemon {

// Reads requests from standard input, one a line, until it ends, and answers each on standard
// output (autotune/service/daemon/worker_supervisor.h). A problem that takes longer than `seconds`
// and some grace ends the process, in case the daemon has gone and cannot; 0: no limit.
Status run_worker(const Settings& settings, double seconds);

}  // namespace dorajit::daemon
