// A file of the problems that processes used, for `dorajit tune --from` on another machine.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "runtime/launch/config_source.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// Thread-safe. Any number of processes may share the file: each line is appended by a single write.
class ProblemRecord {
 public:
  // The record of a file, shared by all engines of this process that exist at the same time. Does
  // not open the file yet.
  static std::shared_ptr<ProblemRecord> of(const std::string& path);

  explicit ProblemRecord(std::string path) : path_(std::move(path)) {}
  ProblemRecord(const ProblemRecord&) = delete;
  ProblemRecord& operator=(const ProblemRecord&) = delete;

  // Appends the problem unless this was done before. If that fails, one warning is logged and
  // nothing is written any more.
  void add(const launch::Problem& problem);

 private:
  const std::string path_;
  std::mutex mutex_;
  std::set<std::string, std::less<>> written_;  // under mutex_
  bool has_failed_ = false;                     // under mutex_
};

class RecordingConfigSource final : public launch::ConfigSource {
 public:
  RecordingConfigSource(std::shared_ptr<ProblemRecord> record,
                        std::unique_ptr<launch::ConfigSource> answering)
      : record_(std::move(record)), answering_(std::move(answering)) {}

  launch::ConfigAnswer find(const launch::Problem& problem, device::Device& device,
                            launch::KernelCache& kernels) override {
    record_->add(problem);  // first, so that it is recorded even if the process ends during tuning
    return answering_->find(problem, device, kernels);
  }

  void set_listener(Listener listener) override { answering_->set_listener(std::move(listener)); }
  void close() override { answering_->close(); }

 private:
  const std::shared_ptr<ProblemRecord> record_;
  const std::unique_ptr<launch::ConfigSource> answering_;
};

}  // namespace dorajit::autotune
