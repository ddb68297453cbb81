#include "cache/artifact_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <format>
#include <string_view>

#include "cache/atomic_file.h"
#include "cache/directories.h"
#include "cache/eviction.h"
#include "cache/file_descriptor.h"
#include "cache/file_error.h"
#include "cache/sealed_file.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

// No kernel comes near this; a file that does is not ours and must not be read into memory.
constexpr off_t kMaxFileBytes = off_t{1} << 29;

// Other processes insert too, so the running total of this one is only trusted for a while.
constexpr int kInsertsPerSweep = 64;

bool is_key(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Nothing for a file that is absent. Marks the file as used.
Result<std::optional<std::string>> read_and_touch(const std::string& path) {
  // O_NONBLOCK: opening a FIFO of that name must not wait for a writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    return std::unexpected(file_error("open", path, errno));
  }
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return std::unexpected(file_error("stat", path, errno));
  if (!S_ISREG(info.st_mode) || info.st_size > kMaxFileBytes) return std::string();

  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::unexpected(file_error("read", path, errno));
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  bytes.resize(filled);
  ::futimens(file.get(), nullptr);
  return bytes;
}

std::optional<Artifact> load(SealKind kind, const std::string& key, const std::string& path) {
  auto file = read_and_touch(path);
  if (!file) {
    log_once(LogLevel::kWarning, path, file.error().message);
    return std::nullopt;
  }
  if (!*file) return std::nullopt;
  auto content = unseal(kind, key, **file);
  if (content) return *std::move(content);
  if (content.error().newer) {
    log_once(LogLevel::kInfo, path,
             std::format("{} is left alone: {}, which a newer dorajit wrote", path,
                         content.error().reason));
    return std::nullopt;
  }
  ::unlink(path.c_str());
  log_once(LogLevel::kWarning, path,
           std::format("deleted {}: {}; it will be made again", path, content.error().reason));
  return std::nullopt;
}

Status save(const std::string& path, std::string_view bytes) {
  DORAJIT_TRY(make_private_directories(parent_directory(path)));
  DORAJIT_ASSIGN(AtomicFile file, AtomicFile::create(path));
  DORAJIT_TRY(file.write(bytes));
  return file.publish_replacing();
}

void say_not_kept(const std::string& directory, const Error& error) {
  log_once(LogLevel::kWarning, directory,
           std::format("what is compiled is not kept in {}: {}", directory, error.message));
}

std::string subdirectory(const std::string& cache_dir, std::string_view name) {
  return cache_dir.empty() ? std::string() : std::format("{}/{}", cache_dir, name);
}

}  // namespace

ArtifactFiles::ArtifactFiles(const std::string& cache_dir, std::uint64_t max_bytes)
    : artifacts_dir_(subdirectory(cache_dir, "artifacts")),
      notes_dir_(subdirectory(cache_dir, "notes")),
      max_bytes_(max_bytes) {}

std::string ArtifactFiles::artifact_path(const std::string& key) const {
  if (artifacts_dir_.empty() || !is_key(key)) return {};
  return std::format("{}/{}/{}.art", artifacts_dir_, key.substr(0, 2), key);
}

std::string ArtifactFiles::note_path(const std::string& key) const {
  if (notes_dir_.empty() || !is_key(key)) return {};
  return std::format("{}/{}", notes_dir_, key);
}

std::optional<Artifact> ArtifactFiles::find(const std::string& key) {
  const std::string path = artifact_path(key);
  if (path.empty()) return std::nullopt;
  return load(SealKind::kArtifact, key, path);
}

void ArtifactFiles::insert(const std::string& key, const Artifact& artifact) {
  const std::string path = artifact_path(key);
  if (path.empty()) return;
  const std::string bytes = seal(SealKind::kArtifact, key, artifact);
  if (auto saved = save(path, bytes); !saved) {
    say_not_kept(artifacts_dir_, saved.error());
    return;
  }
  keep_within_bound(path, bytes.size());
}

std::optional<std::string> ArtifactFiles::find_note(const std::string& key) {
  const std::string path = note_path(key);
  if (path.empty()) return std::nullopt;
  auto content = load(SealKind::kNote, key, path);
  if (!content) return std::nullopt;
  return std::move(content->code);
}

void ArtifactFiles::insert_note(const std::string& key, const std::string& note) {
  const std::string path = note_path(key);
  if (path.empty()) return;
  if (auto saved = save(path, seal(SealKind::kNote, key, {note, {}})); !saved) {
    say_not_kept(notes_dir_, saved.error());
  }
}

void ArtifactFiles::keep_within_bound(const std::string& new_file, std::uint64_t new_bytes) {
  const std::scoped_lock lock(mutex_);
  if (known_bytes_) *known_bytes_ += new_bytes;
  if (known_bytes_ && *known_bytes_ <= max_bytes_ && ++inserts_since_sweep_ < kInsertsPerSweep) {
    return;
  }
  known_bytes_ = evict_least_recently_used(artifacts_dir_, max_bytes_, new_file);
  inserts_since_sweep_ = 0;
}

}  // namespace dorajit::cache
