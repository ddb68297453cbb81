#include "cache/records/verified_configs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <format>
#include <optional>

#include "cache/files/file_error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {
namespace {

constexpr const char* kFolder = "verified";

}  // namespace

VerifiedConfigs::VerifiedConfigs(const std::string& cache_dir, const Trust& trust)
    : cache_dir_(cache_dir), trust_(trust) {}

bool VerifiedConfigs::contains(std::string_view key) const {
  if (cache_dir_.empty()) return false;
  const auto cache = TrustedDirectory::open(cache_dir_, trust_);
  if (!cache || !*cache) return false;  // the first user of the folder logs this
  const auto found = [&]() -> Result<bool> {
    DORAJIT_ASSIGN(const auto folder, (*cache)->enter(kFolder));
    if (!folder) return false;
    DORAJIT_ASSIGN(const auto file, folder->open_file(std::string(key)));
    return file.has_value();
  }();
  if (!found) complain(LogLevel::kWarning, found.error());
  return found && *found;
}

Status VerifiedConfigs::create(std::string_view key) const {
  DORAJIT_ASSIGN(const TrustedDirectory folder,
                 TrustedDirectory::make(cache_dir_, trust_, {kFolder}));
  const std::string name(key);
  // contains() did not accept the existing file, unless another process has just added it. A FIFO
  // must not be opened for writing, because that waits for a reader.
  if (::unlinkat(folder.descriptor(), name.c_str(), 0) != 0 && errno != ENOENT) {
    return std::unexpected(file_error("replace", folder.path() + "/" + name, errno));
  }
  const FileDescriptor file(::openat(folder.descriptor(), name.c_str(),
                                     O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, folder.file_mode()));
  if (file || errno == EEXIST) return {};
  return std::unexpected(file_error("write", folder.path() + "/" + name, errno));
}

void VerifiedConfigs::complain(LogLevel level, const Error& error) const {
  log_once(
      level, std::format("{}/{}", cache_dir_, kFolder),
      std::format(
          "cannot store which winners were verified, so the next process verifies them again: {}",
          error.message));
}

void VerifiedConfigs::add(std::string_view key) const {
  if (cache_dir_.empty() || contains(key)) return;
  if (const Status made = create(key); !made) complain(LogLevel::kInfo, made.error());
}

}  // namespace dorajit::cache
