#include "cache/eviction.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <vector>

#include "cache/atomic_file.h"

namespace dorajit::cache {
namespace {

struct File {
  std::string path;
  std::uint64_t bytes;
  std::int64_t seconds;
  std::int64_t nanoseconds;
};

std::vector<std::string> list(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    paths.push_back(entry->path().native());
  }
  return paths;
}

}  // namespace

std::uint64_t evict_least_recently_used(const std::string& directory, std::uint64_t max_bytes,
                                        const std::string& keep) {
  std::vector<File> files;
  std::uint64_t total = 0;
  for (const std::string& folder : list(directory)) {
    remove_stale_temporaries(folder);
    for (const std::string& path : list(folder)) {
      struct stat info{};
      if (!path.ends_with(".art") || ::lstat(path.c_str(), &info) != 0) continue;
      const auto bytes = static_cast<std::uint64_t>(info.st_size);
      files.push_back({path, bytes, info.st_mtim.tv_sec, info.st_mtim.tv_nsec});
      total += bytes;
    }
  }
  if (total <= max_bytes) return total;

  std::ranges::sort(files, {}, [](const File& file) {
    return std::tie(file.seconds, file.nanoseconds, file.path);
  });
  for (const File& file : files) {
    if (total <= max_bytes) break;
    if (file.path == keep) continue;
    if (::unlink(file.path.c_str()) == 0) total -= file.bytes;
  }
  return total;
}

}  // namespace dorajit::cache
