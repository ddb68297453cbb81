#include "autotune/service/daemon/worker_supervisor.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <format>
#include <fstream>
#include <utility>
#include <variant>

#include "runtime/base/log.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace dorajit::autotune {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxUnsentToWorker = std::size_t{64} << 10;
constexpr std::chrono::seconds kPauseAfterFailedStart{5};
constexpr std::chrono::milliseconds kPauseAfterLostWorker{200};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> found;
  for (std::string& text : texts) found.push_back(text.data());
  found.push_back(nullptr);
  return found;
}

std::string how_it_ended(std::int64_t status, int signal) {
  if (signal != 0) return std::format("was ended by signal {}", signal);
  return std::format("ended with exit code {}", status);
}

}  // namespace

std::int64_t resident_bytes(int process) {
  std::ifstream file(std::format("/proc/{}/statm", process));
  std::int64_t total_pages = 0;
  std::int64_t resident_pages = 0;
  if (!(file >> total_pages >> resident_pages)) return 0;
  return resident_pages * ::sysconf(_SC_PAGESIZE);
}

WorkerProcess::WorkerProcess(uv_loop_t* loop, Events events)
    : input_(std::make_unique<ByteStream>(loop, kMaxUnsentToWorker)),
      output_(std::make_unique<ByteStream>(loop, kMaxUnsentToWorker)),
      lines_(protocol::kMaxRequestBytes),
      events_(std::move(events)) {}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::start(
    uv_loop_t* loop, const std::vector<std::string>& command,
    const std::vector<std::string>& environment, Events events) {
  std::unique_ptr<WorkerProcess> worker(new WorkerProcess(loop, std::move(events)));
  std::vector<std::string> arguments = command;
  std::vector<std::string> variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  std::vector<char*> argument_pointers = pointers(arguments);
  std::vector<char*> variable_pointers = pointers(variables);

  std::array<uv_stdio_container_t, 3> stdio{};
  // NOLINTBEGIN(clang-analyzer-optin.core.EnumCastOutOfRange): libuv's flags are meant to be or-ed
  stdio[0].flags = static_cast<uv_stdio_flags>(UV_CREATE_PIPE | UV_READABLE_PIPE);
  stdio[0].data.stream = reinterpret_cast<uv_stream_t*>(worker->input_->handle());
  stdio[1].flags = static_cast<uv_stdio_flags>(UV_CREATE_PIPE | UV_WRITABLE_PIPE);
  stdio[1].data.stream = reinterpret_cast<uv_stream_t*>(worker->output_->handle());
  // NOLINTEND(clang-analyzer-optin.core.EnumCastOutOfRange)
  stdio[2].flags = UV_INHERIT_FD;
  stdio[2].data.fd = 2;

  uv_process_options_t options{};
  options.file = argument_pointers.front();
  options.args = argument_pointers.data();
  options.env = variable_pointers.data();
  options.stdio = stdio.data();
  options.stdio_count = static_cast<int>(stdio.size());
  // In a session of its own, so that Ctrl-C on the daemon's terminal drains and does not end it.
  options.flags = UV_PROCESS_DETACHED;
  options.exit_cb = [](uv_process_t* process, std::int64_t status, int signal) {
    auto* self = static_cast<WorkerProcess*>(process->data);
    self->take_rest();
    self->has_ended_ = true;
    const auto on_exit = self->events_.on_exit;  // the call may destroy the worker
    on_exit(self->why_killed_.empty() ? how_it_ended(status, signal) : self->why_killed_);
  };
  worker->process_->data = worker.get();
  const int code = uv_spawn(loop, worker->process_.get(), &options);
  worker->process_.mark_open();
  if (code != 0) {
    worker->has_ended_ = true;
    return uv_failure("starting the worker " + command.front(), code);
  }
  WorkerProcess* self = worker.get();
  DORAJIT_TRY(self->output_->start_reading(
      {.on_bytes = [self](std::string_view bytes) { self->take(bytes); }, .on_end = [] {}}));
  return worker;
}

void WorkerProcess::take(std::string_view bytes) {
  lines_.feed(bytes);
  const auto on_answer = events_.on_answer;
  while (const auto line = lines_.next()) {
    if (const auto answer = protocol::parse_answer(*line)) on_answer(*answer);
  }
  if (lines_.is_too_long()) kill("wrote an invalid answer");
}

// The worker may have answered and ended before the loop processed it.
void WorkerProcess::take_rest() {
  uv_os_fd_t pipe = -1;
  if (uv_fileno(reinterpret_cast<uv_handle_t*>(output_->handle()), &pipe) != 0) return;
  std::array<char, protocol::kMaxRequestBytes> bytes{};
  ssize_t got = 0;
  while ((got = ::read(pipe, bytes.data(), bytes.size())) > 0) {
    take({bytes.data(), static_cast<std::size_t>(got)});
  }
}

void WorkerProcess::send(const Job& job) {
  const protocol::Request request =
      protocol::TuneRequest{.problem = job.problem, .device = job.device, .space = job.space};
  if (!input_ || !input_->write(to_line(request))) kill("does not read");
}

void WorkerProcess::close_input() { input_.reset(); }

void WorkerProcess::kill(std::string why) {
  if (has_ended_) return;
  if (why_killed_.empty()) why_killed_ = std::move(why);
  uv_process_kill(process_.get(), SIGKILL);
}

WorkerSupervisor::WorkerSupervisor(uv_loop_t* loop, WorkerKey key, const WorkerRules& rules,
                                   DeviceLoad& load, Events events)
    : loop_(loop),
      key_(std::move(key)),
      rules_(rules),
      load_(load),
      events_(std::move(events)),
      last_tick_(steady_clock::now()) {}

bool WorkerSupervisor::is_resting() {
  const auto pause_at = [this](double duty) {
    return std::chrono::duration_cast<steady_clock::duration>(spent_ * (1 / duty - 1));
  };
  const auto since = steady_clock::now() - ended_;
  if (since < pause_at(rules_.duty)) return true;
  return since < pause_at(std::min(rules_.duty, rules_.busy_duty)) && !finds_a_free_device();
}

// The worker's own device, or another one of the same model, for which the worker is replaced.
bool WorkerSupervisor::finds_a_free_device() {
  if (!load_.is_busy(key_.first, gpu_)) return true;
  std::string idlest = load_.idlest_gpu(key_.first);
  if (idlest == gpu_ || load_.is_busy(key_.first, idlest)) return false;
  dismiss_worker();
  gpu_ = std::move(idlest);
  return true;
}

bool WorkerSupervisor::make_ready() {
  if (running_job_ || steady_clock::now() < not_before_ || is_resting()) return false;
  if (worker_ == nullptr && !start_worker()) return false;
  return worker_->takes_jobs();
}

bool WorkerSupervisor::start_worker() {
  ended_ = steady_clock::now();
  spent_ = {};
  const bool is_slim = key_.second == kernels::SpaceKind::kSlim;
  std::vector<std::string> environment = {
      std::format("DORAJIT_AUTOTUNE={}", is_slim ? "slim" : "comprehensive")};
  gpu_ = load_.idlest_gpu(key_.first);
  if (!gpu_.empty()) environment.push_back("CUDA_VISIBLE_DEVICES=" + gpu_);
  auto started = WorkerProcess::start(
      loop_, rules_.command, environment,
      {.on_answer = [this](const protocol::Answer& answer) { take_answer(answer); },
       .on_exit = [this](const std::string& how) { lose_worker(how); }});
  if (!started) {
    log_once(LogLevel::kError, "worker", started.error().message);
    not_before_ = steady_clock::now() + kPauseAfterFailedStart;
    return false;
  }
  worker_ = *std::move(started);
  events_.on_start();
  return true;
}

void WorkerSupervisor::begin(const Job& job) {
  running_job_ = job;
  age_ = {};
  last_tick_ = steady_clock::now();
  worker_->send(job);
}

void WorkerSupervisor::take_answer(const protocol::Answer& answer) {
  const auto is_about_it = [&](const auto& answered) {
    return answered.problem == running_job_->problem && answered.device == running_job_->device;
  };
  const auto* tuned = std::get_if<protocol::Tuned>(&answer);
  const auto* failed = std::get_if<protocol::Failed>(&answer);
  if (!running_job_ || (tuned == nullptr && failed == nullptr)) return;
  if (tuned != nullptr ? !is_about_it(*tuned) : !is_about_it(*failed)) return;
  count_time();
  ended_ = steady_clock::now();
  spent_ = age_;
  const Result result{.job = *std::exchange(running_job_, std::nullopt),
                      .answer = answer,
                      .seconds = std::chrono::duration<double>(spent_).count()};
  events_.on_result(result);
}

void WorkerSupervisor::lose_worker(const std::string& how) {
  ended_worker_ = std::move(worker_);
  ended_ = steady_clock::now();
  if (!running_job_) return log(LogLevel::kInfo, "an idle worker " + how);
  spent_ = age_;
  not_before_ = ended_ + kPauseAfterLostWorker;
  const Job job = *std::exchange(running_job_, std::nullopt);
  events_.on_loss(job, how);
}

void WorkerSupervisor::count_time() {
  const Moment now = steady_clock::now();
  // If the daemon itself was stopped for a while, its worker may have been, too.
  age_ += std::min<steady_clock::duration>(now - last_tick_, 4 * kTick);
  last_tick_ = now;
}

void WorkerSupervisor::dismiss_worker() {
  if (worker_ == nullptr || !worker_->takes_jobs()) return;
  worker_->close_input();
  dismissed_ = steady_clock::now();
}

std::string WorkerSupervisor::why_to_kill() const {
  if (running_job_ && age_ > rules_.time_limit) {
    return std::format("took longer than {} ms", rules_.time_limit.count());
  }
  if (!running_job_ && !worker_->takes_jobs() && last_tick_ - dismissed_ > rules_.end_time) {
    return std::format("did not end within {} ms", rules_.end_time.count());
  }
  if (rules_.max_bytes > 0 && resident_bytes(worker_->pid()) > rules_.max_bytes) {
    return std::format("took more than {} MiB of memory", rules_.max_bytes >> 20);
  }
  return {};
}

void WorkerSupervisor::tick() {
  count_time();
  ended_worker_.reset();
  if (worker_ == nullptr) return;
  if (std::string why = why_to_kill(); !why.empty()) return worker_->kill(std::move(why));
  if (!running_job_ && last_tick_ - ended_ > rules_.idle_time) dismiss_worker();
}

bool WorkerSupervisor::is_unused() const {
  const auto full_pause = std::chrono::duration_cast<steady_clock::duration>(
      spent_ * (1 / std::min(rules_.duty, rules_.busy_duty) - 1));
  const Moment now = steady_clock::now();
  return worker_ == nullptr && !running_job_ && now >= not_before_ && now - ended_ >= full_pause;
}

}  // namespace dorajit::autotune
