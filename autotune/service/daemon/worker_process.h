// A process that tunes for the daemon: a crash or a hang affects only this process.
#pragma once

#include <uv.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autotune/service/daemon/job_queue.h"
#include "autotune/service/daemon/uv_handles.h"
#include "autotune/service/protocol/messages.h"

namespace dorajit::autotune {

// Resident memory of a process in bytes, including shared pages; 0 if unknown.
std::int64_t resident_bytes(int process);

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

}  // namespace dorajit::autotune
