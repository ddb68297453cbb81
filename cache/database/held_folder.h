// Keeps one path per database folder, as SQLite requires, while any database in it is open.
#pragma once

#include <memory>

#include "cache/files/trusted_directory.h"

namespace dorajit::cache {

// SQLite names the memory that processes share after the path under which this process first opened
// a database. All users of a folder must therefore use the same descriptor.
using HeldFolder = std::shared_ptr<const TrustedDirectory>;

// Returns the folder through the descriptor that this process already has for it, if any.
// Thread-safe; call it within Work::kSqlite.
HeldFolder hold(TrustedDirectory folder);

// The name of an SQLite VFS like the default one, except that it takes a path through the
// descriptor of an open folder (TrustedDirectory::held_path) as complete. The default VFS would
// resolve the folder's name and open that path, which may be a different folder by then. Null if
// there is no such VFS.
const char* held_folder_vfs();

}  // namespace dorajit::cache
