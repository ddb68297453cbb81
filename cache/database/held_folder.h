// Folders of databases, as SQLite wants them: by one path for as long as one of theirs is open.
#pragma once

#include <memory>

#include "cache/files/trusted_directory.h"

namespace dorajit::cache {

// SQLite names the memory that processes share by the path under which this process first opened a
// database, so all that have a folder open go by one descriptor.
using HeldFolder = std::shared_ptr<const TrustedDirectory>;

// The folder, by the descriptor that this process has of it already if it has one. Thread-safe;
// call it within Work::kSqlite.
HeldFolder hold(TrustedDirectory folder);

// The name of an SQLite VFS like the default one, for which a path through the descriptor of an
// open folder (TrustedDirectory::held_path) is complete. The default one would look up what the
// folder is called and go there by name, where another folder may be by then. Null where there is
// none.
const char* held_folder_vfs();

}  // namespace dorajit::cache
