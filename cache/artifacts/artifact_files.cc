#include "cache/artifacts/artifact_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <format>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/files/shared_file.h"
#include "runtime/base/hash.h"
#include "runtime/base/json_text.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

using nlohmann::json;

constexpr std::int64_t kFormat = 1;
constexpr const char* kHeaderHash = "header_xxh3_128";

struct ResourceField {
  const char* name;
  int ResourceUsage::* member;
};
constexpr ResourceField kResourceFields[] = {
    {"registers", &ResourceUsage::registers},
    {"shared_bytes", &ResourceUsage::shared_bytes},
    {"stack_bytes", &ResourceUsage::stack_bytes},
    {"spill_store_bytes", &ResourceUsage::spill_store_bytes},
    {"spill_load_bytes", &ResourceUsage::spill_load_bytes},
};

std::string magic(SealKind kind) {
  return kind == SealKind::kArtifact ? "dorajit-artifact" : "dorajit-note";
}

std::unexpected<UnsealFailure> damaged(std::string reason) {
  return std::unexpected(UnsealFailure{std::move(reason), false});
}

// No kernel is nearly as large. A larger file is not an artifact and must not be read into memory.
constexpr off_t kMaxFileBytes = off_t{1} << 29;

// Other processes insert too, so this process's running total is recomputed regularly.
constexpr int kInsertsPerSweep = 64;

bool is_key(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

constexpr const char* kNotesFolder = "notes";

// Location of a key's file in the cache folder.
struct Place {
  std::vector<std::string> folders;
  std::string name;
};

Place place_of(SealKind kind, const std::string& key) {
  if (kind == SealKind::kNote) return {{kNotesFolder}, key};
  return {{kArtifactFolder, key.substr(0, 2)}, key + ".art"};
}

// Logs once per folder that it cannot be used, for reading or for writing.
void say_unusable(const std::string& cache_dir, const Place& place, const Error& error) {
  const std::string folder = std::format("{}/{}", cache_dir, place.folders.front());
  const bool has_notes = place.folders.front() == kNotesFolder;
  log_once(LogLevel::kWarning, folder,
           std::format("{} are not stored in {}: {}", has_notes ? "notes" : "compiled kernels",
                       folder, error.message));
}

struct File {
  std::string path;  // relative to the folder of artifacts
  std::uint64_t bytes;
  std::int64_t seconds;
  std::int64_t nanoseconds;
};

std::vector<std::string> list(const TrustedDirectory& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.held_path(), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().native());
  }
  return names;
}

}  // namespace

std::string seal(SealKind kind, std::string_view key, const Artifact& content) {
  json header = {{"magic", magic(kind)},
                 {"format", kFormat},
                 {"key", key},
                 {"size", content.code.size()},
                 {"xxh3_128", hash_hex(content.code)}};
  if (kind == SealKind::kArtifact) {
    json& resources = header["resources"] = json::object();
    for (const auto& field : kResourceFields) {
      resources[field.name] = content.resources.*field.member;
    }
    if (content.entry != Artifact::kDefaultEntry) header["entry"] = content.entry;
  }
  header[kHeaderHash] = hash_hex(header.dump());
  return header.dump() + '\n' + content.code;
}

std::expected<Artifact, UnsealFailure> unseal(SealKind kind, std::string_view key,
                                              std::string_view file) {
  const std::size_t end = file.find('\n');
  if (end == std::string_view::npos) return damaged("its header is cut off");
  auto parsed = parse_json(file.substr(0, end));
  if (!parsed || !parsed->is_object()) return damaged("its header is not JSON");
  JsonFields::Json& header = *parsed;
  if (json_member<std::string>(header, "magic") != magic(kind))
    return damaged("its header has another magic");
  const auto format = json_member<std::int64_t>(header, "format");
  if (format > kFormat) {
    return std::unexpected(UnsealFailure{std::format("it has format {}", *format), true});
  }

  const auto header_hash = json_member<std::string>(header, kHeaderHash);
  header.erase(kHeaderHash);
  // Invalid UTF-8 in a damaged header must not throw; it is replaced, which changes the hash.
  if (header_hash != hash_hex(header.dump(-1, ' ', false, json::error_handler_t::replace))) {
    return damaged("its header was altered");
  }
  if (json_member<std::string>(header, "key") != key) return damaged("it belongs to another key");
  const std::string_view payload = file.substr(end + 1);
  if (json_member<std::int64_t>(header, "size") != static_cast<std::int64_t>(payload.size())) {
    return damaged("its size is wrong");
  }
  if (json_member<std::string>(header, "xxh3_128") != hash_hex(payload))
    return damaged("its content was altered");

  Artifact content{std::string(payload), {}};
  if (auto entry = json_member<std::string>(header, "entry")) content.entry = *std::move(entry);
  const auto resources = header.find("resources");
  if (resources != header.end()) {
    for (const auto& field : kResourceFields) {
      content.resources.*field.member =
          static_cast<int>(json_member<std::int64_t>(*resources, field.name).value_or(0));
    }
  }
  return content;
}

ArtifactFiles::ArtifactFiles(const std::string& cache_dir, std::uint64_t max_bytes,
                             const Trust& trust)
    : cache_dir_(cache_dir), max_bytes_(max_bytes), trust_(trust) {}

std::optional<Artifact> ArtifactFiles::load(SealKind kind, const std::string& key) const {
  if (cache_dir_.empty() || !is_key(key)) return std::nullopt;
  const Place place = place_of(kind, key);
  const auto folder = TrustedDirectory::open(cache_dir_, trust_, place.folders);
  if (!folder) say_unusable(cache_dir_, place, folder.error());
  if (!folder || !*folder) return std::nullopt;
  const std::string path = (*folder)->path() + "/" + place.name;
  const auto file = (*folder)->read_file(place.name, kMaxFileBytes);
  if (!file) {
    log_once(LogLevel::kWarning, path, file.error().message);
    return std::nullopt;
  }
  if (!*file) return std::nullopt;
  // Its time of use.
  ::utimensat((*folder)->descriptor(), place.name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  auto content = unseal(kind, key, **file);
  if (content) return *std::move(content);
  if (content.error().newer) {
    log_once(LogLevel::kInfo, path,
             std::format("{} is not used: {}, written by a newer dorajit", path,
                         content.error().reason));
    return std::nullopt;
  }
  const bool is_gone = ::unlinkat((*folder)->descriptor(), place.name.c_str(), 0) == 0;
  log_once(LogLevel::kWarning, path,
           std::format("{} {}: {}; it will be created again", is_gone ? "deleted" : "ignored", path,
                       content.error().reason));
  return std::nullopt;
}

bool ArtifactFiles::save(SealKind kind, const std::string& key, std::string_view bytes) const {
  const Place place = place_of(kind, key);
  const Status saved = [&]() -> Status {
    DORAJIT_ASSIGN(const TrustedDirectory folder,
                   TrustedDirectory::make(cache_dir_, trust_, place.folders));
    DORAJIT_ASSIGN(AtomicFile file,
                   AtomicFile::create(folder.held_path() + "/" + place.name,
                                      FilePlace::kCacheFolder, folder.file_mode()));
    DORAJIT_TRY(file.write(bytes));
    return file.publish_replacing();
  }();
  if (!saved) say_unusable(cache_dir_, place, saved.error());
  return saved.has_value();
}

std::optional<Artifact> ArtifactFiles::find(const std::string& key) {
  return load(SealKind::kArtifact, key);
}

void ArtifactFiles::insert(const std::string& key, const Artifact& artifact) {
  if (cache_dir_.empty() || !is_key(key)) return;
  const std::string bytes = seal(SealKind::kArtifact, key, artifact);
  if (!save(SealKind::kArtifact, key, bytes)) return;
  keep_within_bound(std::format("{}/{}.art", key.substr(0, 2), key), bytes.size());
}

std::optional<std::string> ArtifactFiles::find_note(const std::string& key) {
  auto content = load(SealKind::kNote, key);
  if (!content) return std::nullopt;
  return std::move(content->code);
}

void ArtifactFiles::insert_note(const std::string& key, const std::string& note) {
  if (cache_dir_.empty() || !is_key(key)) return;
  save(SealKind::kNote, key, seal(SealKind::kNote, key, {note, {}}));
}

void ArtifactFiles::keep_within_bound(const std::string& new_file, std::uint64_t new_bytes) {
  const std::scoped_lock lock(mutex_);
  if (known_bytes_) *known_bytes_ += new_bytes;
  if (known_bytes_ && *known_bytes_ <= max_bytes_ && ++inserts_since_sweep_ < kInsertsPerSweep) {
    return;
  }
  const auto artifacts = TrustedDirectory::open(cache_dir_, trust_, {kArtifactFolder});
  if (!artifacts || !*artifacts) return;
  known_bytes_ = evict_least_recently_used(**artifacts, max_bytes_, new_file).bytes_left;
  inserts_since_sweep_ = 0;
}

Eviction evict_least_recently_used(const TrustedDirectory& artifacts, std::uint64_t max_bytes,
                                   const std::string& keep) {
  std::vector<File> files;
  Eviction result;
  std::uint64_t& total = result.bytes_left;
  for (const std::string& shard : list(artifacts)) {
    const auto folder = artifacts.enter(shard);
    if (!folder || !*folder) continue;
    remove_stale_temporaries((*folder)->held_path());
    for (const std::string& name : list(**folder)) {
      struct stat info{};
      if (!name.ends_with(".art") ||
          ::fstatat((*folder)->descriptor(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        continue;
      }
      const auto bytes = static_cast<std::uint64_t>(info.st_size);
      files.push_back({shard + "/" + name, bytes, info.st_mtim.tv_sec, info.st_mtim.tv_nsec});
      total += bytes;
    }
  }
  result.files_left = std::ssize(files);
  if (total <= max_bytes) return result;

  std::ranges::sort(files, {}, [](const File& file) {
    return std::tie(file.seconds, file.nanoseconds, file.path);
  });
  for (const File& file : files) {
    if (total <= max_bytes) break;
    if (file.path == keep) continue;
    if (::unlinkat(artifacts.descriptor(), file.path.c_str(), 0) != 0) continue;
    total -= file.bytes;
    result.bytes_deleted += file.bytes;
    --result.files_left;
    ++result.files_deleted;
  }
  return result;
}

}  // namespace dorajit::cache
