#include "cache/records/pinned_configs.h"

#include <algorithm>
#include <chrono>
#include <format>

#include "cache/files/atomic_file.h"
#include "cache/files/file_lock.h"
#include "cache/records/device_models.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

constexpr const char* kName = "pins.jsonl";
constexpr off_t kMaxBytes = off_t{1} << 24;
constexpr std::chrono::seconds kLockWait{10};

}  // namespace

Result<std::vector<LockEntry>> PinnedConfigs::read() const {
  if (cache_dir_.empty()) return std::vector<LockEntry>();
  DORAJIT_ASSIGN(const auto folder, TrustedDirectory::open(cache_dir_, trust_));
  if (!folder) return std::vector<LockEntry>();
  DORAJIT_ASSIGN(const auto text, folder->read_file(kName, kMaxBytes));
  if (!text) return std::vector<LockEntry>();
  auto entries = parse_lock_text(*text);
  if (entries) return entries;
  return fail(StatusCode::kIoError,
              std::format("cannot use the pinned configs in {}/{}: {}; delete the file, and pin "
                          "again with `dorajit pin`",
                          folder->path(), kName, entries.error().message));
}

std::optional<kernels::Config> PinnedConfigs::find(std::string_view device,
                                                   std::string_view problem) const {
  const auto entries = read();
  if (!entries) {
    log_once(LogLevel::kWarning, cache_dir_ + "/" + kName, entries.error().message);
    return std::nullopt;
  }
  // Of two for the model, that for the device itself.
  const LockEntry* found = nullptr;
  for (const LockEntry& entry : *entries) {
    if (entry.problem != problem || !is_same_model(entry.device, device)) continue;
    if (found == nullptr || (entry.device == device && found->device != device)) found = &entry;
  }
  return found == nullptr ? std::nullopt : std::optional(found->config);
}

Status PinnedConfigs::change(const std::function<void(std::vector<LockEntry>&)>& edit) const {
  if (cache_dir_.empty()) {
    return fail(StatusCode::kIoError,
                "a config can be pinned only in a cache folder that can be written: set "
                "DORAJIT_CACHE_DIR to one");
  }
  DORAJIT_ASSIGN(const TrustedDirectory folder, TrustedDirectory::make(cache_dir_, trust_));
  const std::string path = folder.held_path() + "/" + kName;
  DORAJIT_ASSIGN(const auto lock,
                 FileLock::acquire(path + ".lock", FileLock::Mode::kExclusive, kLockWait,
                                   FilePlace::kCacheFolder, folder.file_mode()));
  if (!lock) {
    return fail(StatusCode::kIoError,
                std::format("{}/{} is locked by another process; try again when it is done",
                            cache_dir_, kName));
  }
  DORAJIT_ASSIGN(std::vector<LockEntry> entries, read());
  edit(entries);
  DORAJIT_ASSIGN(AtomicFile file,
                 AtomicFile::create(path, FilePlace::kCacheFolder, folder.file_mode()));
  DORAJIT_TRY(file.write(to_lock_text(entries)));
  return file.publish_replacing();
}

Status PinnedConfigs::add(const LockEntry& entry) const {
  return change([&](std::vector<LockEntry>& entries) {
    entries.insert(entries.begin(), entry);  // of two for one problem the first is kept
  });
}

Result<bool> PinnedConfigs::remove(std::string_view device, std::string_view problem) const {
  bool is_removed = false;
  DORAJIT_TRY(change([&](std::vector<LockEntry>& entries) {
    is_removed = std::erase_if(entries, [&](const LockEntry& entry) {
                   return entry.problem == problem && is_same_model(entry.device, device);
                 }) > 0;
  }));
  return is_removed;
}

}  // namespace dorajit::cache
