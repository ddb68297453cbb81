// A file of the problems that processes met, for `dorajit tune --from` to tune elsewhere.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// Thread-safe. Any number of processes may share the file: each line is appended by one write.
class ProblemRecord {
 public:
  // The record of a file, one for all engines of this process that live at the same time. Opens
  // nothing yet.
  static std::shared_ptr<ProblemRecord> of(const std::string& path);

  explicit ProblemRecord(std::string path) : path_(std::move(path)) {}
  ProblemRecord(const ProblemRecord&) = delete;
  ProblemRecord& operator=(const ProblemRecord&) = delete;

  // Appends the problem unless it was before. When that fails, one warning says so and nothing is
  // written any more.
  void add(const launch::Problem& problem);

 private:
  const std::string path_;
  std::mutex mutex_;
  std::set<std::string, std::less<>> written_;  // under mutex_
  bool has_failed_ = false;                     // under mutex_
};

}  // namespace dorajit::autotune
