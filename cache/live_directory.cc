#include "cache/live_directory.h"

#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <format>

#include "runtime/base/hash.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

// Those that linux/magic.h does not name are GPFS, Lustre, Ceph and BeeGFS.
constexpr unsigned kNetworkFileSystems[] = {
    NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC, CIFS_SUPER_MAGIC, AFS_SUPER_MAGIC,
    CODA_SUPER_MAGIC, 0x47504653,      0x0BD00BD0,       0x00C36400,       0x19830326};

bool is_on_network(std::filesystem::path path) {
  struct statfs found{};
  // What is not there yet will be made where its parent is.
  while (::statfs(path.c_str(), &found) != 0) {
    if (!path.has_parent_path() || path == path.parent_path()) return false;
    path = path.parent_path();
  }
  return std::ranges::contains(kNetworkFileSystems, static_cast<unsigned>(found.f_type));
}

std::string folder_of_this_machine() {
  const char* temporary = std::getenv("TMPDIR");
  return temporary != nullptr && *temporary == '/' ? temporary : "/var/tmp";
}

}  // namespace

std::string live_directory(const std::string& cache_dir) {
  if (cache_dir.empty() || !is_on_network(cache_dir)) return cache_dir;
  std::string folder = std::format("{}/dorajit-{}/{}", folder_of_this_machine(), ::getuid(),
                                   Hasher("live").add("cache", cache_dir).digest());
  log_once(LogLevel::kWarning, "network " + cache_dir,
           std::format("{} is on a network file system, where a database cannot be shared: tuning "
                       "results are kept in {}/tuning.db; compiled kernels stay where they are",
                       cache_dir, folder));
  return folder;
}

}  // namespace dorajit::cache
