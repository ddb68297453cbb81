// Collects log messages during its lifetime.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/log.h"

namespace dorajit::cache {

class CapturedLog {
 public:
  CapturedLog() {
    set_log_sink(
        [](LogLevel, std::string_view message, void* context) {
          auto* self = static_cast<CapturedLog*>(context);
          const std::scoped_lock lock(self->mutex_);
          self->lines_.emplace_back(message);
        },
        this);
  }
  ~CapturedLog() { set_log_sink(nullptr, nullptr); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  int count(std::string_view part) {
    const std::scoped_lock lock(mutex_);
    int found = 0;
    for (const std::string& line : lines_) {
      if (line.find(part) != std::string::npos) ++found;
    }
    return found;
  }
  int size() { return count({}); }
  std::vector<std::string> lines() {
    const std::scoped_lock lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace dorajit::cache
