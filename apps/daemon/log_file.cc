#include "apps/daemon/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "apps/daemon/log_format.h"
#include "autotune/service/protocol/socket_path.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::daemon {
namespace {

constexpr off_t kMaxBytes = off_t{1} << 20;
const std::string kName = autotune::protocol::kLogName;

}  // namespace

Result<LogFile> LogFile::in(const std::string& tuning_dir, const cache::Trust& trust) {
  DORAJIT_ASSIGN(auto folder, cache::TrustedDirectory::make(tuning_dir, trust));
  return LogFile(std::move(folder));
}

void LogFile::attach() {
  struct stat info{};
  if (is_attached_ && (::fstat(STDERR_FILENO, &info) != 0 || info.st_size < kMaxBytes)) return;
  const int folder = folder_.descriptor();
  if (::fstatat(folder, kName.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      info.st_size >= kMaxBytes) {
    ::renameat(folder, kName.c_str(), folder, (kName + ".1").c_str());
  }
  FileDescriptor log(::openat(folder, kName.c_str(),
                              O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log) log = FileDescriptor(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (log) ::dup2(log.get(), STDERR_FILENO);
  is_attached_ = true;
  choose_log_format();
}

}  // namespace dorajit::daemon
