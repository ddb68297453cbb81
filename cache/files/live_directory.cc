#include "cache/files/live_directory.h"

#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <system_error>

#include "cache/files/directories.h"
#include "runtime/base/hash.h"

namespace dorajit::cache {
namespace {

// NFS, SMB 1 to 3, AFS (two clients), Coda, 9P, GPFS, Lustre, Ceph and BeeGFS, by their statfs()
// numbers; no header has all of them. FUSE may be anything and counts as local.
constexpr unsigned kNetworkFileSystems[] = {0x6969,     0x517B,     0xFF534D42, 0xFE534D42,
                                            0x5346414F, 0x6B414653, 0x73757245, 0x01021997,
                                            0x47504653, 0x0BD00BD0, 0x00C36400, 0x19830326};

bool is_on_network(std::filesystem::path path) {
  struct statfs found{};
  // A missing folder will be created in its nearest existing parent.
  while (::statfs(path.c_str(), &found) != 0) {
    if (!path.has_parent_path() || path == path.parent_path()) return false;
    path = path.parent_path();
  }
  return std::ranges::contains(kNetworkFileSystems, static_cast<unsigned>(found.f_type));
}

bool will_do(const char* folder) {
  return folder != nullptr && *folder == '/' && is_writable_directory(folder) &&
         !is_on_network(folder);
}

// TMPDIR may belong to a job and be deleted with it, so it is only the second choice.
std::string folder_of_this_machine() {
  for (const char* folder : {"/var/tmp", static_cast<const char*>(std::getenv("TMPDIR"))}) {
    if (will_do(folder)) return folder;
  }
  return {};
}

}  // namespace

std::string live_directory(const std::string& cache_dir) {
  if (cache_dir.empty() || !is_on_network(cache_dir)) return cache_dir;
  if (std::error_code error;
      std::filesystem::exists(cache_dir, error) && !is_writable_directory(cache_dir)) {
    return cache_dir;
  }
  const std::string folder = folder_of_this_machine();
  if (folder.empty()) return {};
  return std::format("{}/dorajit-{}/{}", folder, ::geteuid(),
                     Hasher("live").add("cache", cache_dir).digest());
}

Status make_live_directory(const std::string& live_dir) {
  DORAJIT_TRY(make_own_directory(parent_directory(live_dir)));
  DORAJIT_TRY(make_own_directory(live_dir));
  return {};
}

}  // namespace dorajit::cache
