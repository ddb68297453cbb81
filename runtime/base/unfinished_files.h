// Unfinished files and folders, which a program deletes when it is terminated.
#pragma once

#include <mutex>
#include <set>
#include <string>

namespace dorajit {

// One object per process. Records nothing and takes no lock unless the program calls
// start_noting(): a library does not control how its process ends, and a lock would interfere with
// fork(). Thread-safe.
class UnfinishedFiles {
 public:
  static UnfinishedFiles& of_this_process();

  // Starts recording names. Call before other threads start.
  void start_noting() { is_noting_ = true; }

  // Hold this while a file is created, published or deleted and while that is recorded. Empty if
  // nothing is recorded.
  [[nodiscard]] std::unique_lock<std::mutex> hold();
  // Records `path` and the files that SQLite creates beside a database of that name. Call while
  // holding hold().
  void add(const std::string& path);
  void remove(const std::string& path);

  // Deletes all recorded files. Threads that create or publish a file afterwards block for ever:
  // the caller ends the process.
  void delete_all_and_stop();

 private:
  bool is_noting_ = false;
  std::mutex mutex_;
  std::set<std::string> paths_;  // under mutex_
};

}  // namespace dorajit
