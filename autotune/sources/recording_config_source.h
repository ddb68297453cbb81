// Records each requested problem, and passes the request on to another source.
#pragma once

#include <memory>
#include <utility>

#include "autotune/sources/problem_record.h"
#include "runtime/launch/config_source.h"

namespace dorajit::autotune {

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
