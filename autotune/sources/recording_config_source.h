// Records each problem that is asked for, and lets another source answer.
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
    record_->add(problem);  // first, so that it is there even if the process ends in the tuning
    return answering_->find(problem, device, kernels);
  }

  void set_listener(Listener listener) override { answering_->set_listener(std::move(listener)); }
  void close() override { answering_->close(); }

 private:
  const std::shared_ptr<ProblemRecord> record_;
  const std::unique_ptr<launch::ConfigSource> answering_;
};

}  // namespace dorajit::autotune
