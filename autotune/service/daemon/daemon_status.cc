#include "autotune/service/daemon/daemon_status.h"

#include <unistd.h>

#include <algorithm>
#include <format>
#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

namespace dorajit::autotune {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxJobsListed = 100;

std::size_t running_jobs(const DaemonSnapshot& snapshot) {
  return static_cast<std::size_t>(
      std::ranges::count(snapshot.jobs, true, &JobQueue::Entry::is_running));
}

void add_heading(std::string& text, std::string_view name, std::string_view type,
                 std::string_view help) {
  text += std::format("# HELP dorajit_{0} {2}\n# TYPE dorajit_{0} {1}\n", name, type, help);
}

// Escapes a label's value.
std::string escaped(std::string_view text) {
  std::string written;
  for (const char letter : text) {
    if (letter == '\\' || letter == '"') written += '\\';
    if (letter == '\n') {
      written += "\\n";
    } else {
      written += letter;
    }
  }
  return written;
}

Json to_json(const RecentResult& recent) {
  const auto& [job, answer, seconds] = recent.result;
  Json found = {{"problem", job.problem}, {"device", job.device}, {"seconds", seconds}};
  const std::chrono::duration<double> age = std::chrono::steady_clock::now() - recent.finished;
  found["age_seconds"] = age.count();
  if (const auto* tuned = std::get_if<protocol::Tuned>(&answer)) {
    found["config"] = tuned->config;
    found["median_ns"] = tuned->median_ns;
    found["default_median_ns"] = tuned->default_median_ns;
  } else if (const auto* failed = std::get_if<protocol::Failed>(&answer)) {
    found["failure"] = failed->reason;
  }
  return found;
}

}  // namespace

std::string status_json(const DaemonSnapshot& snapshot) {
  const DaemonCounters& counters = snapshot.counters;
  Json document = {{"pid", ::getpid()},
                   {"draining", snapshot.is_draining},
                   {"clients", snapshot.clients},
                   {"jobs_waiting", snapshot.jobs.size() - running_jobs(snapshot)},
                   {"jobs_running", running_jobs(snapshot)},
                   {"requests", counters.requests},
                   {"requests_refused", counters.refused_requests},
                   {"tuned", counters.tuned},
                   {"failed", counters.failed},
                   {"workers_started", counters.workers_started},
                   {"workers_lost", counters.workers_lost},
                   {"tuning_seconds", counters.tuning_seconds},
                   {"devices", Json::array()},
                   {"workers", Json::array()},
                   {"recent", Json::array()},
                   {"queue", Json::array()}};
  for (const auto& [device, seconds] : snapshot.tuning_seconds) {
    document["devices"].push_back({{"device", device}, {"tuning_seconds", seconds}});
  }
  for (const RecentResult& recent : snapshot.recent) document["recent"].push_back(to_json(recent));
  for (const DaemonSnapshot::Worker& worker : snapshot.workers) {
    document["workers"].push_back({{"pid", worker.pid},
                                   {"device", worker.device},
                                   {"problem", worker.job ? Json(worker.job->problem) : Json()}});
  }
  for (const JobQueue::Entry& entry : snapshot.jobs) {
    if (document["queue"].size() == kMaxJobsListed) break;
    document["queue"].push_back({{"problem", entry.job.problem},
                                 {"device", entry.job.device},
                                 {"benefit", entry.benefit},
                                 {"waiters", entry.waiters},
                                 {"running", entry.is_running}});
  }
  return document.dump();
}

std::string prometheus_text(const DaemonSnapshot& snapshot) {
  const DaemonCounters& counters = snapshot.counters;
  std::string text;
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help,
                       auto value) {
    add_heading(text, name, type, help);
    text += std::format("dorajit_{} {}\n", name, static_cast<double>(value));
  };
  add("daemon_clients", "gauge", "Connected clients.", snapshot.clients);
  add("daemon_jobs_waiting", "gauge", "Problems that wait to be tuned.",
      snapshot.jobs.size() - running_jobs(snapshot));
  add("daemon_jobs_running", "gauge", "Problems that are being tuned.", running_jobs(snapshot));
  add("daemon_workers", "gauge", "Worker processes.", snapshot.workers.size());
  add("daemon_requests_total", "counter", "Requests to tune a problem.", counters.requests);
  add("daemon_requests_refused_total", "counter", "Requests that were refused.",
      counters.refused_requests);
  add("daemon_tuned_total", "counter", "Problems tuned.", counters.tuned);
  add("daemon_failed_total", "counter", "Problems that could not be tuned.", counters.failed);
  add("daemon_workers_started_total", "counter", "Worker processes started.",
      counters.workers_started);
  add("daemon_workers_lost_total", "counter", "Worker processes that ended during a job.",
      counters.workers_lost);
  add("daemon_tuning_seconds_total", "counter", "Time that workers spent tuning.",
      counters.tuning_seconds);
  add_heading(text, "daemon_device_seconds_total", "counter",
              "Time that workers spent tuning, by device.");
  for (const auto& [device, seconds] : snapshot.tuning_seconds) {
    text += std::format("dorajit_daemon_device_seconds_total{{device=\"{}\"}} {}\n",
                        escaped(device), seconds);
  }
  return text;
}

}  // namespace dorajit::autotune
