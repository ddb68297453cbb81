// Users that attack each other: root can be any of them, another user only itself.
#pragma once

#include <grp.h>
#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "tests/fakes/child_process.h"

namespace dorajit::hostile {

inline constexpr uid_t kNobody = 65534;
inline constexpr uid_t kAttacker = 54321;
inline constexpr gid_t kSharedGroup = 54322;
inline constexpr gid_t kOtherGroup = 54323;

inline bool is_root() { return ::geteuid() == 0; }

// The unprivileged user that a test can be.
inline uid_t ordinary_user() { return is_root() ? kNobody : ::geteuid(); }

inline bool become(uid_t user) {
  if (user == ::geteuid()) return true;
  return ::setgroups(1, &kSharedGroup) == 0 && ::setresgid(user, user, user) == 0 &&
         ::setresuid(user, user, user) == 0;
}

// The exit status of `body` in a process of that user, as run_in_child().
inline int run_as(uid_t user, const std::function<int()>& body) {
  return cache::run_in_child([&] { return become(user) ? body() : cache::kChildSkips; });
}

}  // namespace dorajit::hostile
