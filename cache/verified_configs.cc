#include "cache/verified_configs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <format>

#include "cache/directories.h"
#include "cache/file_descriptor.h"
#include "cache/file_error.h"
#include "runtime/base/log.h"

namespace dorajit::cache {

VerifiedConfigs::VerifiedConfigs(const std::string& cache_dir)
    : directory_(cache_dir.empty() ? std::string() : cache_dir + "/verified") {}

bool VerifiedConfigs::contains(std::string_view key) const {
  return !directory_.empty() && ::access(std::format("{}/{}", directory_, key).c_str(), F_OK) == 0;
}

void VerifiedConfigs::add(std::string_view key) const {
  if (directory_.empty()) return;
  Status made = make_private_directories(directory_);
  if (made) {
    const std::string path = std::format("{}/{}", directory_, key);
    const FileDescriptor file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) made = std::unexpected(file_error("write", path, errno));
  }
  if (!made) {
    log_once(LogLevel::kInfo, directory_,
             std::format("verified winners are verified again by the next process: {}",
                         made.error().message));
  }
}

}  // namespace dorajit::cache
