// Passes dorajit's log messages to a C++ function (dorajit.hpp).
#ifndef DORAJIT_LOG_SINK_HPP_
#define DORAJIT_LOG_SINK_HPP_

#include <dorajit/dorajit.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace dorajit {
inline namespace v0 {

enum class LogLevel : std::int32_t {
  kError = DORAJIT_LOG_ERROR,
  kWarning = DORAJIT_LOG_WARNING,
  kInfo = DORAJIT_LOG_INFO,
  kDebug = DORAJIT_LOG_DEBUG
};

// While it exists, receives the messages of the entire process in place of standard error. If there
// are several, the latest one receives them. Destroying the latest restores standard error;
// destroying another one changes nothing. May be created and destroyed on any thread, but not from
// within the function.
//
// This object owns the function. It is called with complete lines, from any thread, one at a time,
// and never after the destructor has returned. It must not call dorajit. An exception that it
// throws is discarded, with the message.
class LogSink {
 public:
  using Function = std::function<void(LogLevel level, const char* message)>;

  // Throws only std::bad_alloc.
  explicit LogSink(Function function)
      : function_(std::make_unique<const Function>(std::move(function))) {
    const std::lock_guard<std::mutex> lock(current().mutex);
    dorajit_set_log_sink(&LogSink::receive, const_cast<Function*>(function_.get()));
    current().function = function_.get();
  }

  ~LogSink() {
    const std::lock_guard<std::mutex> lock(current().mutex);
    if (function_ == nullptr || current().function != function_.get()) return;
    dorajit_set_log_sink(nullptr, nullptr);
    current().function = nullptr;
  }

  // A moved-from object receives nothing.
  LogSink(LogSink&&) noexcept = default;
  LogSink& operator=(LogSink&&) = delete;

 private:
  struct Current {
    std::mutex mutex;
    const Function* function = nullptr;  // under mutex
  };

  // Never destroyed: a LogSink may be a static object of another translation unit.
  static Current& current() {
    static Current* const leaked = new Current;
    return *leaked;
  }

  static void receive(std::int32_t level, const char* message, void* context) noexcept {
    try {
      (*static_cast<const Function*>(context))(static_cast<LogLevel>(level), message);
    } catch (...) {  // NOLINT(bugprone-empty-catch): C code called this, and a log may be lost
    }
  }

  std::unique_ptr<const Function> function_;
};

}  // namespace v0
}  // namespace dorajit

#endif  // DORAJIT_LOG_SINK_HPP_
