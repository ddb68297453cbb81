#include "cache/held_folder.h"

#include <sqlite3.h>

#include <cstring>
#include <format>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "cache/file_error.h"

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
  // Never freed: SQLite may be the host's and keep its list for longer than this library is loaded.
  // The address in the name tells two copies of this library apart.
  auto* own = new sqlite3_vfs(*standard);
  auto* name = new std::string(std::format("dorajit-{}", static_cast<const void*>(own)));
  own->pNext = nullptr;
  own->zName = name->c_str();
  own->xFullPathname = full_pathname;
  return sqlite3_vfs_register(own, 0) == SQLITE_OK ? own->zName : nullptr;
}

}  // namespace

HeldFolder hold(TrustedDirectory folder) {
  static auto& mutex = *new std::mutex();
  static auto& held =
      *new std::map<std::pair<dev_t, ino_t>, std::weak_ptr<const TrustedDirectory>>();
  const std::scoped_lock lock(mutex);
  std::erase_if(held, [](const auto& entry) { return entry.second.expired(); });
  auto& known = held[{folder.status().st_dev, folder.status().st_ino}];
  if (HeldFolder shared = known.lock()) return shared;
  auto shared = std::make_shared<const TrustedDirectory>(std::move(folder));
  known = shared;
  return shared;
}

const char* held_folder_vfs() {
  static const char* const name = make();
  return name;
}

}  // namespace dorajit::cache
