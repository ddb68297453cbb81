// A file of the problems that processes used, for `dorajit tune --from` on another machine.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

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

}  // namespace dorajit::autotune
