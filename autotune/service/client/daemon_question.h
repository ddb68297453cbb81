// One question to the daemon, for who can wait for the answer.
#pragma once

#include <chrono>
#include <string>

#include "autotune/service/protocol/messages.h"
#include "runtime/base/error.h"

namespace dorajit::autotune {

// The text that answers a status, metrics or drain request. kIoError where no daemon listens in the
// folder, it does not fit `own`, or it does not answer in time.
Result<std::string> ask_daemon(const std::string& folder, const protocol::Hello& own,
                               const protocol::Request& request,
                               std::chrono::milliseconds patience = std::chrono::seconds(10));

}  // namespace dorajit::autotune
