#include "autotune/service/daemon/worker_process.h"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <format>
#include <fstream>
#include <utility>

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace dorajit::autotune {
namespace {

constexpr std::size_t kMaxUnsentToWorker = std::size_t{64} << 10;

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

}  // namespace dorajit::autotune
