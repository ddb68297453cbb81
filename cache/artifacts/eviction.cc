#include "cache/artifacts/eviction.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <vector>

#include "cache/files/atomic_file.h"

namespace dorajit::cache {
namespace {

struct File {
  std::string path;  // relative to the folder of artifacts
  std::uint64_t bytes;
  std::int64_t seconds;
  std::int64_t nanoseconds;
};

std::vector<std::string> list(const TrustedDirectory& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.held_path(), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().native());
  }
  return names;
}

}  // namespace

Eviction evict_least_recently_used(const TrustedDirectory& artifacts, std::uint64_t max_bytes,
                                   const std::string& keep) {
  std::vector<File> files;
  Eviction result;
  std::uint64_t& total = result.bytes_left;
  for (const std::string& shard : list(artifacts)) {
    const auto folder = artifacts.enter(shard);
    if (!folder || !*folder) continue;
    remove_stale_temporaries((*folder)->held_path());
    for (const std::string& name : list(**folder)) {
      struct stat info{};
      if (!name.ends_with(".art") ||
          ::fstatat((*folder)->descriptor(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        continue;
      }
      const auto bytes = static_cast<std::uint64_t>(info.st_size);
      files.push_back({shard + "/" + name, bytes, info.st_mtim.tv_sec, info.st_mtim.tv_nsec});
      total += bytes;
    }
  }
  result.files_left = std::ssize(files);
  if (total <= max_bytes) return result;

  std::ranges::sort(files, {}, [](const File& file) {
    return std::tie(file.seconds, file.nanoseconds, file.path);
  });
  for (const File& file : files) {
    if (total <= max_bytes) break;
    if (file.path == keep) continue;
    if (::unlinkat(artifacts.descriptor(), file.path.c_str(), 0) != 0) continue;
    total -= file.bytes;
    result.bytes_deleted += file.bytes;
    --result.files_left;
    ++result.files_deleted;
  }
  return result;
}

}  // namespace dorajit::cache
