// Where one device's problems are tuned: a worker, started when there is work and replaced when it
// dies, under a watchdog.
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
#include "autotune/service/daemon/worker_process.h"
#include "autotune/service/protocol/messages.h"

namespace dorajit::autotune {

// A device's fingerprint and the space that is searched.
using BenchKey = std::pair<std::string, kernels::SpaceKind>;

struct WorkerRules {
  std::vector<std::string> command;
  std::chrono::milliseconds patience{60'000};  // with a job; the daemon's own pauses do not count
  std::int64_t most_bytes = 0;                 // of memory; 0: no limit
  double duty = 0.25;                          // share of the time that a worker may tune
  double busy_duty = 0.05;                     // the same while others use the device
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
    std::function<void(const Job&, const std::string& how)> on_loss;  // of the worker, at work
    std::function<void()> on_start;                                   // of a worker
  };
  // `rules` and `load` outlive it. Not to be destroyed from within an event.
  WorkerSupervisor(uv_loop_t* loop, BenchKey key, const WorkerRules& rules, DeviceLoad& load,
                   Events events);
  WorkerSupervisor(const WorkerSupervisor&) = delete;
  WorkerSupervisor& operator=(const WorkerSupervisor&) = delete;

  // Whether it can begin a job now. Starts a worker where that is all that is missing.
  bool make_ready();
  // After make_ready().
  void begin(const Job& job);

  // The watchdog's look; to be called every kTick.
  void tick();
  static constexpr std::chrono::milliseconds kTick{250};

  [[nodiscard]] const BenchKey& key() const { return key_; }
  [[nodiscard]] const std::optional<Job>& in_hand() const { return in_hand_; }
  [[nodiscard]] int worker_pid() const { return worker_ ? worker_->pid() : 0; }
  // No worker, no job and no reason to wait: it may as well be made anew.
  [[nodiscard]] bool is_unused() const;

 private:
  bool start_worker();
  [[nodiscard]] bool rests();
  [[nodiscard]] bool finds_a_free_device();
  void take_answer(const protocol::Answer& answer);
  void lose_worker(const std::string& how);
  void count_time();

  uv_loop_t* loop_;
  const BenchKey key_;
  const WorkerRules& rules_;
  DeviceLoad& load_;
  const Events events_;

  std::unique_ptr<WorkerProcess> worker_;
  std::string gpu_;                              // that it works on; empty: the first
  std::unique_ptr<WorkerProcess> ended_worker_;  // may be in the middle of a call
  std::optional<Job> in_hand_;
  std::chrono::steady_clock::duration age_{};    // of the job in hand
  std::chrono::steady_clock::duration spent_{};  // on the job before
  Moment ended_{};                               // the job before, or the worker's start
  Moment not_before_{};                          // something went wrong
  Moment last_tick_;
};

}  // namespace dorajit::autotune
