#include "autotune/sources/problem_record.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <format>
#include <map>
#include <system_error>
#include <utility>

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

struct OpenRecords {
  explicit OpenRecords(const OpenRecords* /*lost*/) {}

  std::mutex mutex;
  std::map<std::string, std::weak_ptr<ProblemRecord>> of_paths;  // under mutex
};

}  // namespace

std::shared_ptr<ProblemRecord> ProblemRecord::of(const std::string& path) {
  static constinit ForkSafe<OpenRecords, dorajit::Work::kPreparing> records;
  const ForkGuard work(dorajit::Work::kPreparing);
  auto& [mutex, of_paths] = current(records);
  const std::scoped_lock lock(mutex);
  std::weak_ptr<ProblemRecord>& known = of_paths[path];
  auto record = known.lock();
  if (record == nullptr) {
    record = std::make_shared<ProblemRecord>(path);
    known = record;
  }
  return record;
}

void ProblemRecord::add(const launch::Problem& problem) {
  std::string name = to_text(problem);
  const std::scoped_lock lock(mutex_);
  if (has_failed_ || written_.contains(name)) return;
  if (const Status appended = append(path_, name + '\n'); !appended) {
    has_failed_ = true;
    log(LogLevel::kWarning,
        std::format("problems are not recorded in {}: {}; set DORAJIT_RECORD to a file that can be "
                    "written, or unset it",
                    path_, appended.error().message));
    return;
  }
  written_.insert(std::move(name));
}

}  // namespace dorajit::autotune
