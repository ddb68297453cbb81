// The worker processes of the daemon, and what they work on.
#pragma once

#include <uv.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autotune/service/daemon/device_load.h"
#include "autotune/service/daemon/job_queue.h"
#include "autotune/service/daemon/uv_handles.h"
#include "autotune/service/protocol/messages.h"

namespace dorajit::autotune {

// Resident memory of a process in bytes, including shared pages; 0 if unknown.
std::int64_t resident_bytes(int process);

// A process that tunes for the daemon: a crash or a hang affects only this process.
//
// Reads TuneRequest lines from standard input and answers each with Tuned or Failed on standard
// output; its standard error is the daemon's. Ends when its input ends.
class WorkerProcess {
 public:
  struct Events {
    std::function<void(const protocol::Answer&)> on_answer;
    std::function<void(std::string how)> on_exit;  // the last event
  };

  // `command` is the program and its arguments; `environment` is added to the daemon's environment.
  static Result<std::unique_ptr<WorkerProcess>> start(uv_loop_t* loop,
                                                      const std::vector<std::string>& command,
                                                      const std::vector<std::string>& environment,
                                                      Events events);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  // Does not kill the process: its input ends, and then it ends.
  ~WorkerProcess() = default;

  void send(const Job& job);
  // Lets the process finish its job and end.
  void close_input();
  // `why` is passed to on_exit, as in "took too long".
  void kill(std::string why);

  [[nodiscard]] int pid() const { return process_->pid; }
  [[nodiscard]] bool takes_jobs() const { return input_ != nullptr && !has_ended_; }

 private:
  WorkerProcess(uv_loop_t* loop, Events events);
  void take(std::string_view bytes);
  void take_rest();

  UvHandle<uv_process_t> process_;
  std::unique_ptr<ByteStream> input_;
  std::unique_ptr<ByteStream> output_;
  protocol::LineSplitter lines_;
  Events events_;
  bool has_ended_ = false;
  std::string why_killed_;
};

// A device's fingerprint and the space to search.
using WorkerKey = std::pair<std::string, kernels::SpaceKind>;

struct WorkerRules {
  std::vector<std::string> command;
  // Time limit of a job; the daemon's own pauses do not count.
  std::chrono::milliseconds time_limit{60'000};
  std::chrono::milliseconds idle_time{30'000};  // after it a worker without a job is told to end
  std::chrono::milliseconds end_time{10'000};   // after it a worker that was told so is killed
  std::int64_t max_bytes = 0;                   // of memory; 0: no limit
  double duty = 0.25;                           // share of the time in which a worker may tune
  double busy_duty = 0.05;                      // the same while other processes use the device
};

class WorkerSupervisor {
 public:
  using Moment = std::chrono::steady_clock::time_point;
  struct Result {
    Job job;
    protocol::Answer answer;  // Tuned or Failed
    double seconds = 0;
  };
  struct Events {
    std::function<void(const Result&)> on_result;
    std::function<void(const Job&, const std::string& how)> on_loss;  // a worker ended during a job
    std::function<void()> on_start;                                   // a worker started
  };
  // `rules` and `load` must outlive it. Must not be destroyed within an event.
  WorkerSupervisor(uv_loop_t* loop, WorkerKey key, const WorkerRules& rules, DeviceLoad& load,
                   Events events);
  WorkerSupervisor(const WorkerSupervisor&) = delete;
  WorkerSupervisor& operator=(const WorkerSupervisor&) = delete;

  // Whether it can begin a job now. Starts a worker if only that is missing.
  bool make_ready();
  // Call after make_ready() returned true.
  void begin(const Job& job);

  // Runs the watchdog; call every kTick.
  void tick();
  static constexpr std::chrono::milliseconds kTick{250};

  [[nodiscard]] const std::optional<Job>& running_job() const { return running_job_; }
  [[nodiscard]] int worker_pid() const { return worker_ ? worker_->pid() : 0; }
  // No worker, no job and no pause: it can be destroyed and created again.
  [[nodiscard]] bool is_unused() const;

 private:
  bool start_worker();
  [[nodiscard]] bool is_resting();
  [[nodiscard]] bool finds_a_free_device();
  void take_answer(const protocol::Answer& answer);
  void lose_worker(const std::string& how);
  // Lets the worker finish and end.
  void dismiss_worker();
  // Empty if the worker keeps within the rules.
  [[nodiscard]] std::string why_to_kill() const;
  void count_time();

  uv_loop_t* loop_;
  const WorkerKey key_;
  const WorkerRules& rules_;
  DeviceLoad& load_;
  const Events events_;

  std::unique_ptr<WorkerProcess> worker_;
  std::string gpu_;                              // that the worker uses; empty: the first
  std::unique_ptr<WorkerProcess> ended_worker_;  // may still be executing a call
  std::optional<Job> running_job_;
  std::chrono::steady_clock::duration age_{};    // of the running job
  std::chrono::steady_clock::duration spent_{};  // on the previous job
  Moment ended_{};       // when the previous job ended or the worker started
  Moment dismissed_{};   // when the worker was told to end
  Moment not_before_{};  // no job before this time, after an error
  Moment last_tick_;
};

}  // namespace dorajit::autotune
