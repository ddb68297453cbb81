#include "autotune/sources/recording_config_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <format>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

std::unexpected<Error> system_failure() {
  return fail(StatusCode::kIoError, std::generic_category().message(errno));
}

Status append(const std::string& path, std::string_view text) {
  // Opened so that a pipe without a reader neither blocks the caller nor ends the process.
  const FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
  if (!file) return system_failure();
  struct stat what{};
  if (::fstat(file.get(), &what) != 0) return system_failure();
  if (!S_ISREG(what.st_mode)) return fail(StatusCode::kIoError, "it is not a regular file");
  ssize_t written = -1;
  do {
    written = ::write(file.get(), text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return system_failure();
  if (static_cast<std::size_t>(written) == text.size()) return {};
  return fail(StatusCode::kIoError, "there is no space for a complete line");
}

}  // namespace

launch::ConfigAnswer RecordingConfigSource::find(const launch::Problem& problem,
                                                 device::Device& device,
                                                 launch::KernelCache& kernels) {
  record(problem);  // first, so that it is recorded even if the process ends during tuning
  return answering_->find(problem, device, kernels);
}

void RecordingConfigSource::record(const launch::Problem& problem) {
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
