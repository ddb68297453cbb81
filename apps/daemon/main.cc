#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "apps/cli/terminal/number_range.h"
#include "apps/cli/terminal/output.h"
#include "apps/daemon/background.h"
#include "autotune/engine_factory.h"
#include "autotune/service/daemon/daemon.h"
#include "autotune/service/protocol/messages.h"
#include "autotune/service/protocol/socket_path.h"
#include "kernel_templates/config.h"
#include "runtime/base/settings.h"
#include "runtime/compile/compile_worker.h"
#include "runtime/launch/problem.h"

namespace dorajit::daemon {
namespace {

using autotune::DaemonEnd;
using autotune::protocol::Answer;
using autotune::protocol::Failed;
using autotune::protocol::Tuned;
using autotune::protocol::TuneRequest;
using cli::ExitCode;
using kernels::DeviceKind;
using launch::DeviceId;

struct Options {
  std::string cache_dir;
  double idle_exit_seconds = 0;
  double duty_percent = 25;
  double busy_duty_percent = 5;
  double worker_seconds = 0;
  std::int64_t worker_mib = 0;
  bool is_in_foreground = false;
  bool is_worker = false;
  bool is_compiler = false;
};

void declare(CLI::App& app, Options& options) {
  app.add_option("--cache-dir", options.cache_dir,
                 "Where kernels and winners are kept [DORAJIT_CACHE_DIR]")
      ->option_text("DIR");
  app.add_flag("--foreground", options.is_in_foreground,
               "Stay in the foreground and log to standard error");
  app.add_option("--idle-exit", options.idle_exit_seconds,
                 "End after this time without clients and jobs; 0: never")
      ->option_text("SECONDS")
      ->check(cli::number_range(0, 1e9));
  app.add_option("--duty", options.duty_percent,
                 "Share of the time that a device may be tuned on [25]")
      ->option_text("PERCENT")
      ->check(cli::number_range(1, 100));
  app.add_option("--busy-duty", options.busy_duty_percent,
                 "The same while others use the device [5]")
      ->option_text("PERCENT")
      ->check(cli::number_range(1, 100));
  app.add_option("--worker-memory", options.worker_mib,
                 "Memory that a worker may use before it is ended [half of the machine's]")
      ->option_text("MIB")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  app.add_option("--worker-seconds", options.worker_seconds,
                 "Time that a problem may take before its worker is ended [30 + 4 x tuning budget]")
      ->option_text("SECONDS")
      ->check(cli::number_range(1, 1e6));
  app.add_flag("--worker", options.is_worker, "")->group("");  // how the daemon starts itself
  app.add_flag("--compile", options.is_compiler, "")
      ->group("");  // runtime/compile/compile_worker.h
  app.set_version_flag("--version", std::string("dorajitd ") + DORAJIT_VERSION);
  app.footer(
      "Example:\n  dorajitd --idle-exit 3600\n  dorajit daemon status\n\n"
      "Without --foreground it logs to dorajitd.log in the cache folder.\n"
      "Exit codes: 0 done, also when another daemon runs already, 1 failed, 2 wrong usage.");
}

Result<Settings> make_settings(const Options& options) {
  DORAJIT_ASSIGN(Settings settings, Settings::from_environment());
  if (!options.cache_dir.empty()) {
    std::error_code error;
    settings.cache_dir = std::filesystem::absolute(options.cache_dir, error).string();
    if (error) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("--cache-dir {}: {}", options.cache_dir, error.message()));
    }
  }
  settings.tune_policy = TunePolicy::kFirstUse;
  settings.record_path.clear();
  return settings;
}

// The folder of the tuning database, which is made if need be.
Result<std::string> make_tuning_dir(const Settings& settings) {
  const auto parts = autotune::make_engine(settings);
  std::string folder = parts.engine->settings().tuning_dir;
  if (!folder.empty()) return folder;
  return fail(StatusCode::kIoError,
              "there is no cache folder to keep winners in: set DORAJIT_CACHE_DIR, or give "
              "--cache-dir, a folder that can be written");
}

// Each client takes a descriptor, and the soft limit is often 1024.
void allow_many_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Half of this machine's memory, in bytes.
std::int64_t half_of_memory() {
  return std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE) / 2;
}

Result<autotune::WorkerRules> worker_rules(const Settings& settings, const Options& options) {
  std::error_code error;
  const std::string own = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return fail(StatusCode::kIoError, "cannot read the path of this program");
  const double seconds =
      options.worker_seconds > 0 ? options.worker_seconds : 30 + 4 * settings.tune_seconds;
  return autotune::WorkerRules{
      .command = {own, "--worker", "--cache-dir", settings.cache_dir, "--worker-seconds",
                  std::to_string(seconds)},
      .time_limit = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)),
      .max_bytes = options.worker_mib > 0 ? options.worker_mib << 20 : half_of_memory(),
      .duty = options.duty_percent / 100,
      .busy_duty = options.busy_duty_percent / 100};
}

// The device of this machine with that fingerprint.
std::optional<DeviceId> find_device(Engine& engine, const std::string& fingerprint) {
  const auto is_it = [&](const DeviceId& id) {
    const auto device = engine.device(id);
    return device && (*device)->info().fingerprint == fingerprint;
  };
  if (const DeviceId cpu{.kind = DeviceKind::kCpu}; fingerprint.starts_with("cpu") && is_it(cpu)) {
    return cpu;
  }
  for (int ordinal = 0; ordinal < engine.cuda_device_count(); ++ordinal) {
    const DeviceId cuda{.kind = DeviceKind::kCuda, .ordinal = ordinal};
    if (is_it(cuda)) return cuda;
  }
  return std::nullopt;
}

constexpr unsigned kGrace = 10;  // seconds

// Without its daemon, a worker that hangs would keep its claim on the problem for ever.
void set_alarm(double seconds) {
  ::alarm(seconds > 0 ? static_cast<unsigned>(seconds) + kGrace : 0);
}

// Where the system runs out of memory, it should kill this process before the clients.
void prefer_as_oom_victim() { std::ofstream("/proc/self/oom_score_adj") << 1000; }

Answer tune(Engine& engine, const TuneRequest& request) {
  const auto failed = [&](std::string reason) {
    return Failed{request.problem, request.device, std::move(reason)};
  };
  const auto problem = launch::parse_problem(request.problem);
  if (!problem) return failed("invalid problem key");
  const auto id = find_device(engine, request.device);
  if (!id) return failed("this machine has no such device");
  const auto answer = engine.prepare_again(*problem, *id);
  if (!answer) return failed(answer.error().message.substr(0, 1000));
  if (is_exact(answer->origin)) {
    return Tuned{.problem = request.problem,
                 .device = request.device,
                 .config = to_text(answer->config),
                 .median_ns = answer->median_ns,
                 .default_median_ns = answer->default_median_ns};
  }
  const std::string& why = answer->why_untuned;
  return failed("it could not be tuned: " +
                (why.empty() ? "the daemon's log says why" : why.substr(0, 900)));
}

// A worker of the daemon. Reads requests from standard input, one a line, until it ends, and
// answers each on standard output (autotune/service/daemon/worker_supervisor.h). A problem that
// takes longer than `seconds` and some grace ends the process, in case the daemon has gone and
// cannot; 0: no limit.
Status run_worker(const Settings& settings, double seconds) {
  prefer_as_oom_victim();
  const auto parts = autotune::make_engine(settings);
  for (std::string asked; std::getline(std::cin, asked);) {
    DORAJIT_ASSIGN(const auto request, autotune::protocol::parse_request(asked));
    const auto* wanted = std::get_if<TuneRequest>(&request);
    if (wanted == nullptr) continue;
    set_alarm(seconds);
    Answer answer = tune(*parts.engine, *wanted);
    set_alarm(0);
    // A store that has failed to write once keeps to memory, so another process takes the next job.
    const bool is_kept = parts.store->persistent();
    if (!is_kept) {
      answer =
          Failed{wanted->problem, wanted->device,
                 "winners cannot be kept: " + parts.store->reason_not_persistent().substr(0, 500)};
    }
    const std::string line = to_line(answer);
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
    if (!is_kept) break;
  }
  ::alarm(kGrace);  // closing a device may hang, too
  return {};
}

constexpr int kFirstPassed = 3;  // as sd_listen_fds(3) has it

bool is_listening_unix_socket(int descriptor) {
  int domain = 0;
  int listens = 0;
  socklen_t size = sizeof(int);
  return ::getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         domain == AF_UNIX &&
         ::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

// A listening socket that systemd made and hands over (socket activation), or -1. Child processes
// do not inherit it.
int inherited_socket() {
  const bool is_for_us = environment_variable("LISTEN_PID") == std::to_string(::getpid()) &&
                         environment_variable("LISTEN_FDS") == "1" &&
                         is_listening_unix_socket(kFirstPassed);
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(name);
  if (!is_for_us) return -1;
  ::fcntl(kFirstPassed, F_SETFD, FD_CLOEXEC);
  return kFirstPassed;
}

Result<ExitCode> serve(const Settings& settings, const Options& options) {
  const int socket = inherited_socket();
  Background background;
  if (!options.is_in_foreground && socket < 0) {
    DORAJIT_ASSIGN(background, Background::enter());
    if (const auto code = background.parent_exit_code()) return static_cast<ExitCode>(*code);
  }
  choose_log_format();
  allow_many_descriptors();
  autotune::DaemonOptions daemon{.folder = autotune::protocol::socket_folder(settings.daemon_dir),
                                 .idle_exit = std::chrono::milliseconds(
                                     static_cast<std::int64_t>(options.idle_exit_seconds * 1000)),
                                 .socket = socket};
  DORAJIT_ASSIGN(daemon.worker, worker_rules(settings, options));
  DORAJIT_ASSIGN(const std::string tuning_dir, make_tuning_dir(settings));
  daemon.hello = autotune::protocol::own_hello(tuning_dir);
  DORAJIT_ASSIGN(LogFile log, LogFile::in(tuning_dir, autotune::trust_of(settings)));
  if (!options.is_in_foreground && socket < 0) {
    daemon.on_ready = [&] {
      log.attach();
      background.settle();
    };
    daemon.on_tick = [&] { log.attach(); };
  }
  const auto load = autotune::DeviceLoad::of_this_machine();
  DORAJIT_ASSIGN(const DaemonEnd end, autotune::run_daemon(daemon, *load));
  if (end == DaemonEnd::kAlreadyRunning) {
    cli::print_note(std::format("another daemon runs already at {}",
                                autotune::protocol::socket_path(daemon.folder)));
  }
  return ExitCode::kOk;
}

ExitCode run(int argc, char** argv) {
  CLI::App app("Tunes in the background for all processes of this user on this host.", "dorajitd");
  Options options;
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      std::ostringstream text;  // the help or the version
      app.exit(error, text, text);
      cli::print(text.str());
      return ExitCode::kOk;
    }
    cli::print_error(StatusCode::kInvalidArgument,
                     std::format("{}; see `dorajitd --help`", error.what()));
    return ExitCode::kUsage;
  }
  const auto outcome = [&]() -> Result<ExitCode> {
    if (options.is_compiler) {
      DORAJIT_TRY(compile::run_compile_worker());
      return ExitCode::kOk;
    }
    DORAJIT_ASSIGN(const Settings settings, make_settings(options));
    autotune::serve_kept_kernels(settings);
    if (!options.is_worker) return serve(settings, options);
    choose_log_format();
    DORAJIT_TRY(run_worker(settings, options.worker_seconds));
    return ExitCode::kOk;
  }();
  if (outcome) return *outcome;
  cli::print_error(outcome.error());
  return cli::exit_code_of(outcome.error().code);
}

}  // namespace
}  // namespace dorajit::daemon

int main(int argc, char** argv) {
  return dorajit::cli::run_program([&] { return dorajit::daemon::run(argc, argv); });
}
