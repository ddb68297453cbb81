#include "runtime/base/user_ids.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <limits>

namespace dorajit {
namespace {

std::uint32_t overflow_id(const char* setting) {
  std::uint32_t id = 0;
  return std::ifstream(setting) >> id ? id : 65534;
}

// False where that is unknown. Read anew each time, because unshare(2) changes it.
bool maps_every_id(const char* map) {
  std::ifstream lines(map);
  std::uint64_t mapped = 0;
  for (std::uint64_t inside = 0, outside = 0, count = 0; lines >> inside >> outside >> count;) {
    mapped += count;
  }
  return mapped >= std::numeric_limits<std::uint32_t>::max();  // -1 is not an id
}

}  // namespace

bool is_ambiguous_user(uid_t user) {
  static const std::uint32_t overflow = overflow_id("/proc/sys/kernel/overflowuid");
  return user == overflow && !maps_every_id("/proc/self/uid_map");
}

bool is_ambiguous_group(gid_t group) {
  static const std::uint32_t overflow = overflow_id("/proc/sys/kernel/overflowgid");
  return group == overflow && !maps_every_id("/proc/self/gid_map");
}

bool is_this_user(uid_t user) { return user == ::geteuid() && !is_ambiguous_user(user); }

bool is_this_user_or_root(uid_t user) {
  return (user == ::geteuid() || user == 0) && !is_ambiguous_user(user);
}

}  // namespace dorajit
