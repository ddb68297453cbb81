// Records each requested problem, and passes the request on to another source.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "runtime/launch/config_source.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// Appends problems to a file, for `dorajit tune --from` on another machine. Thread-safe. Any number
// of processes may share the file: each line is appended by a single write. If that fails, one
// warning is logged and nothing is written any more.
class RecordingConfigSource final : public launch::ConfigSource {
 public:
  RecordingConfigSource(std::string path, std::unique_ptr<launch::ConfigSource> answering)
      : path_(std::move(path)), answering_(std::move(answering)) {}

  launch::ConfigAnswer find(const launch::Problem& problem, device::Device& device,
                            launch::KernelCache& kernels) override;
  void set_listener(Listener listener) override { answering_->set_listener(std::move(listener)); }
  void close() override { answering_->close(); }

 private:
  void record(const launch::Problem& problem);

  const std::string path_;
  const std::unique_ptr<launch::ConfigSource> answering_;
  std::mutex mutex_;
  std::set<std::string, std::less<>> written_;  // under mutex_
  bool has_failed_ = false;                     // under mutex_
};

}  // namespace dorajit::autotune
