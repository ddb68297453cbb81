#include "runtime/base/unfinished_files.h"

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

namespace dorajit {
namespace {

// Retries, because a compiler that is still running may keep writing into the folder.
void remove_all(const std::string& path) {
  constexpr int kAttempts = 200;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (!error) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

UnfinishedFiles& UnfinishedFiles::of_this_process() {
  // Never destroyed: files are written until the process ends.
  static auto* files = new UnfinishedFiles();
  return *files;
}

std::unique_lock<std::mutex> UnfinishedFiles::hold() {
  return is_noting_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
}

void UnfinishedFiles::add(const std::string& path) {
  if (is_noting_) paths_.insert(path);
}

void UnfinishedFiles::remove(const std::string& path) {
  if (is_noting_) paths_.erase(path);
}

void UnfinishedFiles::delete_all_and_stop() {
  std::unique_lock lock(mutex_);
  for (const std::string& path : paths_) {
    std::error_code ignored;
    remove_all(path);
    for (const char* companion : {"-journal", "-shm", "-wal"}) {
      std::filesystem::remove(path + companion, ignored);
    }
  }
  lock.release();
}

}  // namespace dorajit
