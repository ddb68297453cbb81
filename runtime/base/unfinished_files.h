// Files and folders that are of no use before they are finished, for a program that is told to end.
#pragma once

#include <mutex>
#include <set>
#include <string>

namespace dorajit {

// Of one process. Notes nothing, and locks nothing, unless the program asks for it: a library has
// no say in how its process ends, and a lock would be in the way of fork(). Thread-safe.
class UnfinishedFiles {
 public:
  static UnfinishedFiles& of_this_process();

  // From now on names are noted. Call before there are other threads.
  void start_noting() { is_noting_ = true; }

  // To be held while one appears, gets its name or vanishes, together with the call that notes it.
  // Empty where nothing is noted.
  [[nodiscard]] std::unique_lock<std::mutex> hold();
  // What is at `path`, and beside it the files that SQLite makes for a database of that name. Call
  // with hold().
  void add(const std::string& path);
  void remove(const std::string& path);

  // Deletes all that are noted. Whoever makes or publishes a file later waits for ever: the caller
  // ends the process.
  void delete_all_and_stop();

 private:
  bool is_noting_ = false;
  std::mutex mutex_;
  std::set<std::string> paths_;  // under mutex_
};

}  // namespace dorajit
