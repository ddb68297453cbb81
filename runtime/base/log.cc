#include "runtime/base/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace dorajit {
namespace {

std::string_view label(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    default:
      return "debug";
  }
}

void write_to_stderr(LogLevel level, std::string_view message, void*) {
  std::string line = "dorajit: ";
  line.append(label(level)).append(": ").append(message).append("\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

struct LogState {
  std::atomic<LogLevel> level{LogLevel::kWarning};
  std::mutex mutex;
  LogSink sink = write_to_stderr;
  void* context = nullptr;
  std::set<std::string, std::less<>> said;
};

// Never destroyed: worker threads may log while the process exits.
LogState& state() {
  static auto* instance = new LogState;
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) { state().level.store(level, std::memory_order_relaxed); }

LogLevel log_level() { return state().level.load(std::memory_order_relaxed); }

void set_log_sink(LogSink sink, void* context) {
  const std::scoped_lock lock(state().mutex);
  state().sink = sink != nullptr ? sink : write_to_stderr;
  state().context = context;
}

void log(LogLevel level, std::string_view message) {
  if (level == LogLevel::kOff || level > log_level()) return;
  const std::scoped_lock lock(state().mutex);
  state().sink(level, message, state().context);
}

void log_once(LogLevel level, std::string_view key, std::string_view message) {
  if (level == LogLevel::kOff || level > log_level()) return;
  {
    const std::scoped_lock lock(state().mutex);
    if (!state().said.emplace(key).second) return;
  }
  log(level, message);
}

}  // namespace dorajit
