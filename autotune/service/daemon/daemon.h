// The daemon: one process per user and host that tunes for all other processes
// (docs/daemon_protocol.md).
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "autotune/service/daemon/device_load.h"
#include "autotune/service/daemon/worker_supervisor.h"
#include "autotune/service/protocol/messages.h"
#include "runtime/base/error.h"

namespace dorajit::autotune {

struct DaemonOptions {
  std::string folder{};     // of the socket
  protocol::Hello hello{};  // that a client must match
  WorkerRules worker{};
  // Exits after this time without clients and jobs; 0: never.
  std::chrono::milliseconds idle_exit{0};
  int socket = -1;  // an inherited listening socket; -1: create one
  // Called when clients can connect. May be empty.
  std::function<void()> on_ready{};
  // Called several times a second. May be empty.
  std::function<void()> on_tick{};
};

enum class DaemonEnd {
  kDrained,         // a signal; finished its running jobs
  kIdle,            // no clients and jobs for options.idle_exit
  kAlreadyRunning,  // another daemon runs in that folder
};

// Serves until SIGTERM or SIGINT, and finishes its running jobs. A second signal ends it without
// waiting for running jobs. An error if it cannot serve.
Result<DaemonEnd> run_daemon(const DaemonOptions& options, DeviceLoad& load);

}  // namespace dorajit::autotune
