// A full file system, in a child process.
#pragma once

#include <sched.h>
#include <sys/mount.h>

#include <string>

namespace dorajit::cache {

// Mounts a file system of a few KiB on `directory`, for this process only. False if that is not
// permitted. The process must have a single thread.
inline bool mount_small_disk(const std::string& directory, const std::string& size) {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", directory.c_str(), "tmpfs", 0, ("mode=0755,size=" + size).c_str()) == 0;
}

inline bool remount_read_only(const std::string& directory) {
  return ::mount("tmpfs", directory.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0;
}

}  // namespace dorajit::cache
