// Which user and group ids identify one user or group.
//
// In a user namespace that does not map every id, files and processes of all unmapped users show
// the overflow id, usually 65534. A process that is `nobody` has the same id.
#pragma once

#include <sys/types.h>

namespace dorajit {

// Whether the id may stand for users, or groups, that the namespace of this process does not map.
bool is_ambiguous_user(uid_t user);
bool is_ambiguous_group(gid_t group);

// Whether the id is certainly that of this process's effective user.
bool is_this_user(uid_t user);
bool is_this_user_or_root(uid_t user);

}  // namespace dorajit
