// One process of a user on a host that tunes for all the others (docs/daemon_protocol.md).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "autotune/service/daemon/device_load.h"
#include "autotune/service/daemon/worker_supervisor.h"
#include "autotune/service/protocol/messages.h"
#include "runtime/base/error.h"

namespace dorajit::autotune {

struct DaemonOptions {
  std::string folder{};     // of the socket
  protocol::Hello hello{};  // of clients that fit
  WorkerRules worker{};
  std::chrono::milliseconds idle_exit{0};  // without clients and jobs; 0: never
  std::size_t most_clients = 1024;
  std::size_t most_jobs = 10'000;
  std::string metrics_file{};  // rewritten every few seconds; empty: none
  int socket = -1;             // that listens already; -1: one is made
  // Clients can connect from now on; is given the open folder. May be empty.
  std::function<void(int folder)> on_ready{};
};

enum class DaemonEnd {
  kDrained,       // asked to end, it finished what it had in hand
  kIdle,          // nobody wanted anything for options.idle_exit
  kAnotherLeads,  // there is a daemon in that folder
};

// Serves until it is asked to end: by SIGTERM, SIGINT or a client. A second signal does not wait
// for what is in hand. An error when it cannot serve at all.
Result<DaemonEnd> run_daemon(const DaemonOptions& options, DeviceLoad& load);

}  // namespace dorajit::autotune
