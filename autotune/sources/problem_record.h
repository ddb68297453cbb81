// A file of the problems that processes used, for `dorajit tune --from` on another machine.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "runtime/launch/config_source.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// Appends each problem to the file, once per process, before another source answers. Any number of
// processes may share the file: each line is appended by a single write. After a failure, which is
// logged, this process writes nothing to the file any more.
class RecordingConfigSource final : public launch::ConfigSource {
 public:
  RecordingConfigSource(std::string path, std::unique_ptr<launch::ConfigSource> answering)
      : path_(std::move(path)), answering_(std::move(answering)) {}

  launch::ConfigAnswer find(const launch::Problem& problem, device::Device& device,
                            launch::KernelCache& kernels) override {
    record(problem);  // first, so that it is recorded even if the process ends during tuning
    return answering_->find(problem, device, kernels);
  }

  void set_listener(Listener listener) override { answering_->set_listener(std::move(listener)); }
  void close() override { answering_->close(); }

 private:
  void record(const launch::Problem& problem) const;

  const std::string path_;
  const std::unique_ptr<launch::ConfigSource> answering_;
};

}  // namespace dorajit::autotune
