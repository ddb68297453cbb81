#include "cache/verified_configs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <format>
#include <optional>

#include "cache/file_error.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

constexpr const char* kFolder = "verified";

}  // namespace

VerifiedConfigs::VerifiedConfigs(const std::string& cache_dir, const Trust& trust)
    : cache_dir_(cache_dir), trust_(trust) {}

bool VerifiedConfigs::contains(std::string_view key) const {
  if (cache_dir_.empty()) return false;
  const auto cache = TrustedDirectory::open(cache_dir_, trust_);
  if (!cache || !*cache) return false;
  const auto folder = (*cache)->enter(kFolder);
  if (!folder || !*folder) return false;
  const auto file = (*folder)->open_file(std::string(key));
  return file && file->has_value();
}

Status VerifiedConfigs::create(std::string_view key) const {
  DORAJIT_ASSIGN(const TrustedDirectory cache, TrustedDirectory::make(cache_dir_, trust_));
  DORAJIT_ASSIGN(const TrustedDirectory folder, cache.make_and_enter(kFolder));
  const FileDescriptor file(::openat(folder.descriptor(), std::string(key).c_str(),
                                     O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                                     folder.file_mode()));
  if (file) return {};
  return std::unexpected(file_error("write", folder.path() + "/" + std::string(key), errno));
}

void VerifiedConfigs::add(std::string_view key) const {
  if (cache_dir_.empty()) return;
  if (const Status made = create(key); !made) {
    log_once(LogLevel::kInfo, cache_dir_,
             std::format("verified winners are verified again by the next process: {}",
                         made.error().message));
  }
}

}  // namespace dorajit::cache
