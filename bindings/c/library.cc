// The functions of the C ABI that need no engine: the version and the log.
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "dorajit/dorajit.h"
#include "runtime/base/fork_guard.h"
#include "runtime/base/log.h"

namespace dorajit::bindings {
namespace {

// "1.2.3" is 10203.
constexpr std::int32_t to_number(std::string_view version) {
  std::int32_t number = 0;
  std::int32_t part = 0;
  for (const char character : version) {
    if (character == '.') {
      number = number * 100 + part;
      part = 0;
    } else {
      part = part * 10 + (character - '0');
    }
  }
  return number * 100 + part;
}

static_assert(to_number("1.2.3") == 10203);
static_assert(to_number(DORAJIT_VERSION) == DORAJIT_VERSION_NUMBER,
              "the version macros of dorajit.h differ from project() in CMakeLists.txt");

static_assert(DORAJIT_LOG_ERROR == static_cast<int>(LogLevel::kError));
static_assert(DORAJIT_LOG_WARNING == static_cast<int>(LogLevel::kWarning));
static_assert(DORAJIT_LOG_INFO == static_cast<int>(LogLevel::kInfo));
static_assert(DORAJIT_LOG_DEBUG == static_cast<int>(LogLevel::kDebug));

struct CallerSink {
  dorajit_log_sink sink;
  void* context;
};

void forward(LogLevel level, std::string_view message, void* context) {
  const auto& caller = *static_cast<const CallerSink*>(context);
  caller.sink(static_cast<std::int32_t>(level), std::string(message).c_str(), caller.context);
}

struct CallerSinks {
  explicit CallerSinks(const CallerSinks* /*lost*/) {}

  std::mutex mutex;
  // Double buffer: one place is in use; the other can be written without a reader seeing a change.
  CallerSink places[2]{};
  int next = 0;
};

void set(dorajit_log_sink sink, void* context) {
  static constinit ForkSafe<CallerSinks, Work::kLogging> sinks;
  const ForkGuard work(Work::kLogging);
  auto& [mutex, places, next] = current(sinks);
  const std::scoped_lock lock(mutex);
  if (sink == nullptr) {
    set_log_sink(nullptr, nullptr);
    return;
  }
  places[next] = {.sink = sink, .context = context};
  set_log_sink(forward, &places[next]);
  next = 1 - next;
}

}  // namespace
}  // namespace dorajit::bindings

std::int32_t dorajit_version(void) { return DORAJIT_VERSION_NUMBER; }

void dorajit_set_log_sink(dorajit_log_sink sink, void* context) {
  dorajit::bindings::set(sink, context);
}
