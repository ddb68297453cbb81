#include "autotune/service/daemon/daemon.h"

#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <format>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ranges>
#include <utility>
#include <variant>

#include "autotune/service/daemon/client_registry.h"
#include "autotune/service/daemon/job_queue.h"
#include "autotune/service/daemon/uv_handles.h"
#include "autotune/service/protocol/socket_path.h"
#include "cache/files/directories.h"
#include "cache/files/shared_file.h"
#include "kernel_templates/sizes.h"
#include "runtime/base/log.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxWorkers = 16;
constexpr std::size_t kMaxRecentResults = 20;
constexpr std::size_t kMaxJobsListed = 100;

using Json = nlohmann::ordered_json;

// Counts since the daemon started.
struct Counters {
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
  steady_clock::time_point finished;
};

Json to_json(const RecentResult& recent) {
  const auto& [job, answer, seconds] = recent.result;
  Json found = {{"problem", job.problem}, {"device", job.device}, {"seconds", seconds}};
  const std::chrono::duration<double> age = steady_clock::now() - recent.finished;
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

class Daemon {
 public:
  // `folder` is the open folder of the socket, and `leader` its lock.
  Daemon(const DaemonOptions& options, const FileDescriptor& folder, const cache::FileLock& leader,
         DeviceLoad& load)
      : options_(options),
        folder_(folder),
        leader_(leader),
        load_(load),
        clients_(&loop_, options.hello,
                 {.on_request = [this](ClientId id, const auto& request) { handle(id, request); },
                  .on_leave = [this](ClientId id) { queue_.forget(id); }}) {}

  Result<DaemonEnd> run();

 private:
  Status open();
  Status listen();
  void stay_reachable();
  Status watch_signals();
  void handle(ClientId id, const protocol::Request& request);
  void accept_job(ClientId id, const protocol::TuneRequest& request);
  void pump(const WorkerKey& key);
  void finish(const WorkerSupervisor::Result& result);
  void take_back(const Job& job, const std::string& how);
  void tick();
  void drain();
  void end(DaemonEnd how);
  [[nodiscard]] bool is_busy() const;
  // A JSON document.
  [[nodiscard]] std::string status() const;

  const DaemonOptions& options_;
  const FileDescriptor& folder_;
  const cache::FileLock& leader_;
  DeviceLoad& load_;
  uv_loop_t loop_{};
  JobQueue queue_;
  Counters counters_;
  std::deque<RecentResult> recent_;               // the newest first
  std::map<std::string, double> tuning_seconds_;  // key: device
  std::map<WorkerKey, std::unique_ptr<WorkerSupervisor>> supervisors_;
  ClientRegistry clients_;
  std::unique_ptr<ListeningSocket> listener_;
  UvHandle<uv_timer_t> ticker_;
  std::vector<std::unique_ptr<UvHandle<uv_signal_t>>> signals_;
  steady_clock::time_point last_wanted_ = steady_clock::now();
  bool is_draining_ = false;
  DaemonEnd how_it_ends_ = DaemonEnd::kDrained;
};

Status Daemon::watch_signals() {
  for (const int signal : {SIGTERM, SIGINT}) {
    auto handle = std::make_unique<UvHandle<uv_signal_t>>();
    uv_signal_init(&loop_, handle->get());
    handle->mark_open();
    handle->get()->data = this;
    const auto arrived = [](uv_signal_t* received, int) {
      auto* self = static_cast<Daemon*>(received->data);
      if (self->is_draining_) return self->end(DaemonEnd::kDrained);
      self->drain();
    };
    if (const int code = uv_signal_start(handle->get(), arrived, signal); code != 0) {
      return uv_failure("watching for signals", code);
    }
    signals_.push_back(std::move(handle));
  }
  return {};
}

Status Daemon::listen() {
  listener_.reset();  // it deletes the name, so before the next one is made
  DORAJIT_ASSIGN(listener_, ListeningSocket::open(
                                &loop_, cache::held_path(folder_), options_.socket,
                                [this](uv_stream_t* listener) { clients_.accept(listener); }));
  return {};
}

// A daemon whose socket was deleted would hold the leader's lock, so that nobody could start
// another, and serve nobody.
void Daemon::stay_reachable() {
  if (!listener_ || listener_->is_at(protocol::socket_path(options_.folder))) return;
  struct stat held{};
  struct stat named{};
  const bool is_leader = ::fstat(leader_.descriptor(), &held) == 0 &&
                         ::stat(protocol::leader_lock_path(options_.folder).c_str(), &named) == 0 &&
                         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
  const Status listening =
      is_leader ? listen()
                : fail(StatusCode::kIoError, options_.folder + " was deleted or replaced");
  if (listening) return log(LogLevel::kWarning, "the socket was deleted; it is there again");
  log(LogLevel::kError, listening.error().message + ", so no client finds this daemon");
  drain();
}

Status Daemon::open() {
  DORAJIT_TRY(listen());
  DORAJIT_TRY(watch_signals());
  uv_timer_init(&loop_, ticker_.get());
  ticker_.mark_open();
  ticker_->data = this;
  uv_timer_start(
      ticker_.get(), [](uv_timer_t* timer) { static_cast<Daemon*>(timer->data)->tick(); },
      WorkerSupervisor::kTick.count(), WorkerSupervisor::kTick.count());
  return {};
}

void Daemon::handle(ClientId id, const protocol::Request& request) {
  if (const auto* tune = std::get_if<protocol::TuneRequest>(&request)) return accept_job(id, *tune);
  clients_.send(id, protocol::Text{status()});
}

void Daemon::accept_job(ClientId id, const protocol::TuneRequest& request) {
  ++counters_.requests;
  last_wanted_ = steady_clock::now();
  // The client will find the next daemon and ask it.
  if (is_draining_) return clients_.refuse(id, "the daemon is ending");
  const auto refuse = [&](const char* reason) {
    ++counters_.refused_requests;
    clients_.send(id, protocol::Failed{request.problem, request.device, reason});
  };
  const auto problem = launch::parse_problem(request.problem);
  if (!problem || request.device.empty()) {
    return refuse(
        "invalid problem key, or no device; an operand of more than 2^47 bytes is invalid, too");
  }
  const Job job{.problem = request.problem, .device = request.device, .space = request.space};
  // Kernels are bound by memory bandwidth, so a problem's time is proportional to its size.
  const double size = kernels::num_elements(problem->variant, problem->largest_sizes());
  if (!queue_.offer(job, request.calls * size * request.gain, id)) {
    return refuse("the queue is full");
  }
  pump({job.device, job.space});
}

// Starts the supervisor's next job if it can start one.
void Daemon::pump(const WorkerKey& key) {
  if (is_draining_) return;
  auto found = supervisors_.find(key);
  if (found == supervisors_.end()) {
    if (supervisors_.size() >= kMaxWorkers) return;
    WorkerSupervisor::Events events{
        .on_result = [this](const WorkerSupervisor::Result& result) { finish(result); },
        .on_loss = [this](const Job& job, const auto& how) { take_back(job, how); },
        .on_start = [this] { ++counters_.workers_started; }};
    found = supervisors_
                .emplace(key, std::make_unique<WorkerSupervisor>(&loop_, key, options_.worker,
                                                                 load_, std::move(events)))
                .first;
  }
  WorkerSupervisor& supervisor = *found->second;
  if (!supervisor.make_ready()) return;
  if (const auto job = queue_.take(key.first, key.second)) supervisor.begin(*job);
}

void Daemon::finish(const WorkerSupervisor::Result& result) {
  const auto* tuned = std::get_if<protocol::Tuned>(&result.answer);
  ++(tuned != nullptr ? counters_.tuned : counters_.failed);
  counters_.tuning_seconds += result.seconds;
  if (tuned != nullptr) tuning_seconds_[result.job.device] += result.seconds;
  last_wanted_ = steady_clock::now();
  recent_.push_front({.result = result, .finished = last_wanted_});
  if (recent_.size() > kMaxRecentResults) recent_.pop_back();
  for (const ClientId waiter : queue_.finish(result.job)) clients_.send(waiter, result.answer);
  pump({result.job.device, result.job.space});
}

void Daemon::take_back(const Job& job, const std::string& how) {
  ++counters_.workers_lost;
  log(LogLevel::kWarning, std::format("the worker that tuned {} {}", job.problem, how));
  if (queue_.give_back(job)) return;
  finish({.job = job, .answer = protocol::Failed{job.problem, job.device, "its worker " + how}});
}

void Daemon::tick() {
  if (options_.on_tick) options_.on_tick();
  clients_.sweep();
  stay_reachable();
  for (const auto& [key, supervisor] : supervisors_) supervisor->tick();
  std::erase_if(supervisors_,
                [](const auto& supervisor) { return supervisor.second->is_unused(); });
  for (const WorkerKey& key : queue_.wanted()) pump(key);
  const auto now = steady_clock::now();
  if (is_draining_ && !is_busy()) return end(DaemonEnd::kDrained);
  const bool is_idle = clients_.size() == 0 && queue_.size() == 0;
  if (options_.idle_exit.count() > 0 && is_idle && now - last_wanted_ > options_.idle_exit) {
    end(DaemonEnd::kIdle);
  }
}

std::string Daemon::status() const {
  const std::vector<JobQueue::Entry> jobs = queue_.entries();
  const auto running = std::ranges::count(jobs, true, &JobQueue::Entry::is_running);
  Json document = {{"pid", ::getpid()},
                   {"draining", is_draining_},
                   {"clients", clients_.size()},
                   {"jobs_waiting", std::ssize(jobs) - running},
                   {"jobs_running", running},
                   {"requests", counters_.requests},
                   {"requests_refused", counters_.refused_requests},
                   {"tuned", counters_.tuned},
                   {"failed", counters_.failed},
                   {"workers_started", counters_.workers_started},
                   {"workers_lost", counters_.workers_lost},
                   {"tuning_seconds", counters_.tuning_seconds},
                   {"devices", Json::array()},
                   {"workers", Json::array()},
                   {"recent", Json::array()},
                   {"queue", Json::array()}};
  for (const auto& [device, seconds] : tuning_seconds_) {
    document["devices"].push_back({{"device", device}, {"tuning_seconds", seconds}});
  }
  for (const auto& [key, supervisor] : supervisors_) {
    if (supervisor->worker_pid() == 0) continue;
    const auto& job = supervisor->running_job();
    document["workers"].push_back({{"pid", supervisor->worker_pid()},
                                   {"device", key.first},
                                   {"problem", job ? Json(job->problem) : Json()}});
  }
  for (const RecentResult& recent : recent_) document["recent"].push_back(to_json(recent));
  for (const JobQueue::Entry& entry : jobs | std::views::take(kMaxJobsListed)) {
    document["queue"].push_back({{"problem", entry.job.problem},
                                 {"device", entry.job.device},
                                 {"benefit", entry.benefit},
                                 {"waiters", entry.waiters},
                                 {"running", entry.is_running}});
  }
  return document.dump();
}

bool Daemon::is_busy() const {
  return std::ranges::any_of(supervisors_, [](const auto& supervisor) {
    return supervisor.second->running_job().has_value();
  });
}

void Daemon::drain() {
  if (is_draining_) return;
  is_draining_ = true;
  listener_.reset();
  log(LogLevel::kInfo, "the daemon finishes its running jobs and ends");
}

void Daemon::end(DaemonEnd how) {
  how_it_ends_ = how;
  uv_stop(&loop_);
}

Result<DaemonEnd> Daemon::run() {
  if (const int code = uv_loop_init(&loop_); code != 0) return uv_failure("starting", code);
  const Status opened = open();
  if (opened) {
    log(LogLevel::kInfo, "listening in " + options_.folder);
    if (options_.on_ready) options_.on_ready();
    uv_run(&loop_, UV_RUN_DEFAULT);
  }
  listener_.reset();
  clients_.close();
  supervisors_.clear();
  signals_.clear();
  ticker_.close();
  uv_run(&loop_, UV_RUN_DEFAULT);  // closes the handles
  uv_loop_close(&loop_);
  if (!opened) return std::unexpected(opened.error());
  return how_it_ends_;
}

}  // namespace

Result<DaemonEnd> run_daemon(const DaemonOptions& options, DeviceLoad& load) {
  // Programs that connect by the path need it to fit the limit; this process uses the path through
  // the open folder.
  if (options.socket < 0) {
    DORAJIT_TRY(protocol::check_socket_path(protocol::socket_path(options.folder)));
  }
  DORAJIT_ASSIGN(const FileDescriptor folder, protocol::make_socket_folder(options.folder));
  DORAJIT_ASSIGN(
      const auto leader,
      cache::FileLock::acquire(protocol::leader_lock_path(cache::held_path(folder)),
                               cache::FileLock::Mode::kExclusive, std::chrono::milliseconds(0),
                               cache::FilePlace::kDaemonFolder));
  if (!leader) return DaemonEnd::kAlreadyRunning;
  ::signal(SIGPIPE, SIG_IGN);
  return Daemon(options, folder, *leader, load).run();
}

}  // namespace dorajit::autotune
