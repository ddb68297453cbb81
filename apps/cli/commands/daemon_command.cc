#include "apps/cli/commands/daemon_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <format>
#include <thread>

#include "apps/cli/terminal/output.h"
#include "apps/cli/views/daemon_report.h"
#include "autotune/service/client/daemon_question.h"
#include "autotune/service/protocol/socket_path.h"
#include "cache/files/live_directory.h"

namespace dorajit::cli {
namespace {

using autotune::protocol::Request;

constexpr std::chrono::seconds kWatchInterval{1};
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

Result<std::string> ask(const Invocation& invocation, const Request& request) {
  const std::string tuning_dir = cache::live_directory(invocation.settings.cache_dir);
  return autotune::ask_daemon(autotune::protocol::socket_folder(invocation.settings.daemon_dir),
                              autotune::protocol::own_hello(tuning_dir), request);
}

Result<ExitCode> print_status(const Invocation& invocation) {
  DORAJIT_ASSIGN(const std::string text, ask(invocation, autotune::protocol::StatusRequest{}));
  const Json status = Json::parse(text, nullptr, false);
  if (!status.is_object()) return fail(StatusCode::kIoError, "the daemon's answer is no document");
  if (invocation.json) {
    Json document = begin_document("daemon status");
    document.update(status);
    print_document(document);
  } else {
    print(daemon_text(status));
  }
  return ExitCode::kOk;
}

// Until the daemon is gone, nobody reads any more, or the user ends it.
Result<ExitCode> watch(const Invocation& invocation) {
  const bool clears = !invocation.json && ::isatty(STDOUT_FILENO) != 0;
  for (;;) {
    if (clears) print_bytes(kClearScreen);
    DORAJIT_TRY(print_status(invocation));
    if (output_is_lost()) return ExitCode::kFailed;
    std::this_thread::sleep_for(kWatchInterval);
  }
}

Result<ExitCode> print_metrics(const Invocation& invocation) {
  DORAJIT_ASSIGN(const std::string text, ask(invocation, autotune::protocol::MetricsRequest{}));
  if (invocation.json) {
    Json document = begin_document("daemon metrics");
    document["prometheus"] = text;
    print_document(document);
  } else {
    print_bytes(text);
  }
  return ExitCode::kOk;
}

Result<ExitCode> drain(const Invocation& invocation) {
  DORAJIT_TRY(ask(invocation, autotune::protocol::DrainRequest{}));
  if (invocation.json) {
    Json document = begin_document("daemon drain");
    document["draining"] = true;
    print_document(document);
  } else {
    print("the daemon finishes what it has in hand and ends\n");
  }
  return ExitCode::kOk;
}

}  // namespace

CLI::App* DaemonCommand::declare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("daemon", "What dorajitd is doing, and its end");
  command->require_subcommand(1);
  status_ = command->add_subcommand("status", "Show queue, workers and recent winners");
  status_->add_flag("--watch", watches_, "Show it again every second");
  status_->footer("Example:\n  dorajit daemon status --watch");
  metrics_ = command->add_subcommand("metrics", "Print its metrics in the format of Prometheus");
  metrics_->footer("Example:\n  dorajit daemon metrics");
  drain_ = command->add_subcommand("drain", "Let it finish what it has in hand and end");
  drain_->footer("Example:\n  dorajit daemon drain");
  command->footer("Example:\n  dorajit daemon status\n  dorajit daemon drain");
  return command;
}

Result<ExitCode> DaemonCommand::run(const Invocation& invocation) {
  if (metrics_->parsed()) return print_metrics(invocation);
  if (drain_->parsed()) return drain(invocation);
  return watches_ ? watch(invocation) : print_status(invocation);
}

}  // namespace dorajit::cli
