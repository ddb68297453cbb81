#include "cache/database/held_folder.h"

#include <sqlite3.h>

#include <cstring>
#include <format>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "cache/files/file_error.h"

namespace dorajit::cache {
namespace {

using FullPathname = decltype(sqlite3_vfs::xFullPathname);
FullPathname default_full_pathname = nullptr;

int full_pathname(sqlite3_vfs* vfs, const char* name, int size, char* result) {
  const std::string_view path(name);
  if (!path.starts_with(kHeldFolders)) return default_full_pathname(vfs, name, size, result);
  if (path.size() >= static_cast<std::size_t>(size)) return SQLITE_CANTOPEN;
  std::memcpy(result, name, path.size() + 1);
  return SQLITE_OK;
}

const char* make() {
  sqlite3_vfs* const standard = sqlite3_vfs_find(nullptr);
  if (standard == nullptr) return nullptr;
  default_full_pathname = standard->xFullPathname;
  // Never freed: SQLite may belong to the host program and keep its list of VFSs after this library
  // is unloaded. The address in the name distinguishes two copies of this library.
  auto* own = new sqlite3_vfs(*standard);
  auto* name = new std::string(std::format("dorajit-{}", static_cast<const void*>(own)));
  own->pNext = nullptr;
  own->zName = name->c_str();
  own->xFullPathname = full_pathname;
  return sqlite3_vfs_register(own, 0) == SQLITE_OK ? own->zName : nullptr;
}

using FolderId = std::pair<dev_t, ino_t>;

struct CountedFolder {
  explicit CountedFolder(TrustedDirectory opened) : directory(std::move(opened)) {}

  TrustedDirectory directory;
  int users = 0;
};

// Neither is destroyed, so that a thread that outlives main() can still release a folder.
std::mutex& folders_mutex() {
  static auto& mutex = *new std::mutex();
  return mutex;
}
std::map<FolderId, CountedFolder>& folders() {  // under folders_mutex()
  static auto& folders = *new std::map<FolderId, CountedFolder>();
  return folders;
}

void let_go(const FolderId& id) {
  const std::scoped_lock lock(folders_mutex());
  const auto held = folders().find(id);
  if (--held->second.users == 0) folders().erase(held);
}

}  // namespace

HeldFolder hold(TrustedDirectory folder) {
  const std::scoped_lock lock(folders_mutex());
  const FolderId id{folder.status().st_dev, folder.status().st_ino};
  CountedFolder& held = folders().try_emplace(id, std::move(folder)).first->second;
  ++held.users;
  return {&held.directory, [id](const TrustedDirectory* /*held*/) { let_go(id); }};
}

const char* held_folder_vfs() {
  static const char* const name = make();
  return name;
}

}  // namespace dorajit::cache
