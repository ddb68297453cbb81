#include "autotune/sources/problem_record.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <format>
#include <mutex>
#include <set>
#include <system_error>

#include "cache/files/shared_file.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/fork_guard.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

std::unexpected<Error> system_failure() {
  return fail(StatusCode::kIoError, std::generic_category().message(errno));
}

Status append(const std::string& path, std::string_view text) {
  // A pipe without a reader must neither block the caller nor end the process.
  DORAJIT_ASSIGN(const FileDescriptor file, cache::open_for_appending(path));
  struct stat what{};
  if (::fstat(file.get(), &what) != 0) return system_failure();
  if (!S_ISREG(what.st_mode)) return fail(StatusCode::kIoError, "it is not a regular file");
  const FileSizeSignalBlock no_signal;
  ssize_t written = -1;
  do {
    written = ::write(file.get(), text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return system_failure();
  if (static_cast<std::size_t>(written) == text.size()) return {};
  return fail(StatusCode::kIoError, "there is no space for a complete line");
}

// Of this process: "<path> <problem>", and "<path>" alone after a failure.
struct Written {
  explicit Written(const Written* /*lost*/) {}

  std::mutex mutex;
  std::set<std::string> lines;  // under mutex
};

}  // namespace

void RecordingConfigSource::record(const launch::Problem& problem) const {
  static constinit ForkSafe<Written, dorajit::Work::kPreparing> of_process;
  const ForkGuard work(dorajit::Work::kPreparing);
  auto& [mutex, lines] = current(of_process);
  const std::string line = to_text(problem) + '\n';
  const std::scoped_lock lock(mutex);
  if (lines.contains(path_) || !lines.insert(path_ + ' ' + line).second) return;
  if (const Status appended = append(path_, line); !appended) {
    lines.insert(path_);
    log(LogLevel::kWarning,
        std::format("problems are not recorded in {}: {}; set DORAJIT_RECORD to a file that can be "
                    "written, or unset it",
                    path_, appended.error().message));
  }
}

}  // namespace dorajit::autotune
