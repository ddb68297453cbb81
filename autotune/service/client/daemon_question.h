// One blocking request to the daemon.
#pragma once

#include <chrono>
#include <string>

#include "autotune/service/protocol/messages.h"
#include "runtime/base/error.h"

namespace dorajit::autotune {

// The text that answers a status, metrics or drain request. kIoError if no daemon listens in the
// folder, if it does not match `own`, or if it does not answer in time.
Result<std::string> ask_daemon(const std::string& folder, const protocol::Hello& own,
                               const protocol::Request& request,
                               std::chrono::milliseconds timeout = std::chrono::seconds(10));

}  // namespace dorajit::autotune
