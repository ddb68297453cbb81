// The daemon's status report and metrics.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autotune/service/daemon/job_queue.h"
#include "autotune/service/daemon/worker_supervisor.h"

namespace dorajit::autotune {

// Counts since the daemon started.
struct DaemonCounters {
  std::int64_t requests = 0;
  std::int64_t refused_requests = 0;
  std::int64_t tuned = 0;
  std::int64_t failed = 0;
  std::int64_t workers_started = 0;
  std::int64_t workers_lost = 0;  // that ended during a job
  double tuning_seconds = 0;      // that workers spent on jobs
};

struct RecentResult {
  WorkerSupervisor::Result result;
  std::chrono::steady_clock::time_point finished;
};

struct DaemonSnapshot {
  struct Worker {
    int pid = 0;
    std::string device;
    std::optional<Job> job;
  };

  DaemonCounters counters;
  std::size_t clients = 0;
  std::vector<JobQueue::Entry> jobs;
  std::vector<Worker> workers;
  std::vector<RecentResult> recent;              // the newest first
  std::map<std::string, double> tuning_seconds;  // key: device
  bool is_draining = false;
};

// Lists at most the first hundred jobs of the queue.
std::string status_json(const DaemonSnapshot& snapshot);

// The Prometheus text format, version 0.0.4.
std::string prometheus_text(const DaemonSnapshot& snapshot);

}  // namespace dorajit::autotune
