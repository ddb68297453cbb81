#include "runtime/base/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/fork_guard.h"
#include "runtime/base/printable_text.h"

namespace dorajit {
namespace {

void write_to_stderr(LogLevel level, std::string_view message, void*) {
  std::string line = "dorajit: ";
  line.append(name(level)).append(": ").append(message).append("\n");
  const FileSizeSignalBlock no_signal;
  std::fwrite(line.data(), 1, line.size(), stderr);
}

struct LogState {
  // Copies the state that was lost to a fork, unless it was being changed during the fork.
  explicit LogState(const LogState* lost) {
    if (lost == nullptr) return;
    level = lost->level.load();
    if (lost->is_changing) return;
    sink = lost->sink.load();
    context = lost->context.load();
  }

  std::atomic<LogLevel> level{LogLevel::kWarning};
  std::atomic<bool> is_changing = false;  // sink and context
  std::mutex mutex;
  std::atomic<LogSink> sink = write_to_stderr;
  std::atomic<void*> context = nullptr;
  std::set<std::string, std::less<>> logged_keys;
};

// Never destroyed: worker threads may log while the process exits.
LogState& state() {
  static constinit ForkSafe<LogState, Work::kLogging> states;
  return current(states);
}

}  // namespace

std::string_view name(LogLevel level) {
  constexpr std::string_view kNames[] = {"off", "error", "warning", "info", "debug"};
  return kNames[std::to_underlying(level)];
}

void set_log_level(LogLevel level) { state().level.store(level, std::memory_order_relaxed); }

LogLevel log_level() { return state().level.load(std::memory_order_relaxed); }

void set_log_sink(LogSink sink, void* context) {
  const ForkGuard work(Work::kLogging);
  LogState& own = state();
  const std::scoped_lock lock(own.mutex);
  own.is_changing = true;
  own.sink = sink != nullptr ? sink : write_to_stderr;
  own.context = context;
  own.is_changing = false;
}

void log(LogLevel level, std::string_view message) {
  if (level == LogLevel::kOff || level > log_level()) return;
  const ForkGuard work(Work::kLogging);
  LogState& own = state();
  const std::scoped_lock lock(own.mutex);
  // Escaped, because a message may quote a file or an environment variable.
  own.sink.load()(level, printable_line(message), own.context);
}

void log_once(LogLevel level, std::string_view key, std::string_view message) {
  if (level == LogLevel::kOff || level > log_level()) return;
  {
    const ForkGuard work(Work::kLogging);
    LogState& own = state();
    const std::scoped_lock lock(own.mutex);
    if (!own.logged_keys.emplace(key).second) return;
  }
  log(level, message);
}

}  // namespace dorajit
