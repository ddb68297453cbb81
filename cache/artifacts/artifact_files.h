// Compiled kernels and notes as files of a cache folder (docs/artifacts.md).
#pragma once

#include <cstdint>
#include <expected>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "cache/files/trusted_directory.h"
#include "runtime/base/artifact_store.h"

namespace dorajit::cache {

// The format of artifact and note files (docs/artifacts.md): a header line that describes the
// payload, then the payload.
enum class SealKind { kArtifact, kNote };

std::string seal(SealKind kind, std::string_view key, const Artifact& content);

struct UnsealFailure {
  std::string reason;
  bool newer = false;  // written in a later format: not damaged, but unreadable here
};

// The content of a file that is exactly the output of seal() for this kind and key.
std::expected<Artifact, UnsealFailure> unseal(SealKind kind, std::string_view key,
                                              std::string_view file);

inline constexpr std::uint64_t kDefaultArtifactBytes = std::uint64_t{1} << 30;

// Thread-safe; any number of processes may share the folder. If the folder cannot be used, every
// find misses, every insert does nothing, and one log message says so. Code is read only from
// folders and files that `trust` accepts.
class ArtifactFiles final : public ArtifactStore {
 public:
  // With an empty `cache_dir` nothing is stored. Beyond `max_bytes` of artifacts, the least
  // recently used ones are deleted.
  explicit ArtifactFiles(const std::string& cache_dir,
                         std::uint64_t max_bytes = kDefaultArtifactBytes, const Trust& trust = {});

  std::optional<Artifact> find(const std::string& key) override;
  void insert(const std::string& key, const Artifact& artifact) override;
  std::optional<std::string> find_note(const std::string& key) override;
  void insert_note(const std::string& key, const std::string& note) override;

 private:
  std::optional<Artifact> load(SealKind kind, const std::string& key) const;
  bool save(SealKind kind, const std::string& key, std::string_view bytes) const;
  void keep_within_bound(const std::string& new_file, std::uint64_t new_bytes);

  const std::string cache_dir_;  // empty: nothing is stored
  const std::uint64_t max_bytes_;
  const Trust trust_;

  std::mutex mutex_;
  std::optional<std::uint64_t> known_bytes_;  // guarded by mutex_; empty before the first sweep
  int inserts_since_sweep_ = 0;               // guarded by mutex_
};

// Below the cache folder.
inline constexpr const char* kArtifactFolder = "artifacts";

struct Eviction {
  std::uint64_t bytes_left = 0;
  std::uint64_t bytes_deleted = 0;
  std::int64_t files_left = 0;
  std::int64_t files_deleted = 0;
};

// Deletes artifacts below `artifacts`, the least recently used first, until they fit in
// `max_bytes`; never deletes `keep`, a path in that folder. Also removes stale temporary files.
// Files that vanish meanwhile were deleted by another process: not an error. Processes that have
// loaded a kernel keep it; those that need it later compile it again.
Eviction evict_least_recently_used(const TrustedDirectory& artifacts, std::uint64_t max_bytes,
                                   const std::string& keep);

}  // namespace dorajit::cache
