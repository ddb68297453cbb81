#include "cache/files/trusted_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <format>

#include "cache/files/directories.h"
#include "runtime/base/files.h"

namespace dorajit::cache {
namespace {

// Whether the user trusts the members of the folder's group to write in it.
bool is_shared(const struct stat& folder, const Trust& trust) {
  return trust.group && (folder.st_mode & S_IWGRP) != 0 && !is_ambiguous_group(folder.st_gid);
}

bool is_trusted_owner(const struct stat& found, const struct stat* folder, const Trust& trust) {
  if (is_this_user_or_root(found.st_uid)) return true;
  if (found.st_uid == trust.owner && !is_ambiguous_user(found.st_uid)) return true;
  // Created by a member: only members could, and the folder passes on its group (setgid).
  return folder != nullptr && is_shared(*folder, trust) && found.st_gid == folder->st_gid;
}

Status refuse(const std::string& path, std::string_view what, std::string_view remedy,
              const Trust& trust) {
  return fail(StatusCode::kIoError,
              std::format("{} {}, so others could have put code or tuning results there; {}, or {}",
                          path, what, remedy, choice_of(trust.place, "a folder of your own")));
}

// `folder` is the parent of the checked entry, or null for the topmost folder.
Status check(const struct stat& found, const std::string& path, const struct stat* folder,
             const Trust& trust) {
  const unsigned mode = found.st_mode & 07777;
  if (S_ISLNK(found.st_mode)) {
    return fail(
        StatusCode::kIoError,
        std::format("{} is a symbolic link, and none is followed inside a folder of code or "
                    "tuning results; put what it leads to in its place, or {}",
                    path, choice_of(trust.place, "that folder")));
  }
  if (!is_trusted_owner(found, folder, trust)) {
    if (is_ambiguous_user(found.st_uid)) {
      return refuse(path,
                    std::format("belongs to user {}, which stands for every user that this user "
                                "namespace does not map",
                                found.st_uid),
                    "use a namespace that maps its owner to another id", trust);
    }
    return refuse(path,
                  std::format("belongs to user {}, not to user {}", found.st_uid, ::geteuid()),
                  std::format("give it to this user if you trust all that is in it (chown -R {})",
                              ::geteuid()),
                  trust);
  }
  if ((found.st_mode & S_IWOTH) != 0) {
    return refuse(path, std::format("can be written by every user (mode {:04o})", mode),
                  "remove that permission (chmod go-w)", trust);
  }
  if ((found.st_mode & S_IWGRP) != 0 && !is_shared(found, trust)) {
    return refuse(path, std::format("can be written by group {} (mode {:04o})", found.st_gid, mode),
                  "remove that permission (chmod g-w), or set DORAJIT_TRUST_GROUP=1 if each of its "
                  "members may run code as this user",
                  trust);
  }
  return {};
}

}  // namespace

TrustedDirectory::Found TrustedDirectory::open_at(const TrustedDirectory* parent,
                                                  const std::string& name, const Trust& trust) {
  const std::string path = parent != nullptr ? parent->path_of(name) : name;
  const int folder = parent != nullptr ? parent->descriptor() : AT_FDCWD;
  const int follow = parent != nullptr ? O_NOFOLLOW : 0;
  const struct stat* around = parent != nullptr ? &parent->status_ : nullptr;
  FileDescriptor descriptor(
      ::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow));
  struct stat found{};
  if (!descriptor) {
    const int error_number = errno;
    if (error_number == ENOENT) return std::nullopt;
    // After EACCES or for a symbolic link, the message names the owner.
    if (::fstatat(folder, name.c_str(), &found, follow != 0 ? AT_SYMLINK_NOFOLLOW : 0) == 0) {
      if (S_ISLNK(found.st_mode) || S_ISDIR(found.st_mode)) {
        DORAJIT_TRY(check(found, path, around, trust));
      }
    }
    if (error_number == ENOTDIR) return std::nullopt;
    return std::unexpected(file_error("open folder", path, error_number, trust.place));
  }
  if (::fstat(descriptor.get(), &found) != 0) {
    return std::unexpected(file_error("examine folder", path, errno, trust.place));
  }
  DORAJIT_TRY(check(found, path, around, trust));
  return TrustedDirectory(std::move(descriptor), path, found, trust);
}

TrustedDirectory::Found TrustedDirectory::open(const std::string& path, const Trust& trust,
                                               const Names& below) {
  auto folder = open_at(nullptr, path, trust);
  for (const std::string& name : below) {
    if (!folder || !*folder) break;
    folder = (*folder)->enter(name);
  }
  return folder;
}

Result<TrustedDirectory> TrustedDirectory::make(const std::string& path, const Trust& trust,
                                                const Names& below) {
  DORAJIT_TRY(make_private_directories(path, trust.place));
  DORAJIT_ASSIGN(auto found, open(path, trust));
  if (!found) return std::unexpected(file_error("open folder", path, ENOENT, trust.place));
  Result<TrustedDirectory> folder = *std::move(found);
  for (const std::string& name : below) {
    if (!folder) break;
    folder = folder->make_and_enter(name);
  }
  return folder;
}

TrustedDirectory::Found TrustedDirectory::enter(const std::string& name) const {
  return open_at(this, name, trust_);
}

Result<TrustedDirectory> TrustedDirectory::make_and_enter(const std::string& name) const {
  // mkdir() of an existing folder may fail with EROFS, so the check for existence follows the
  // attempt.
  const int error_number = ::mkdirat(descriptor(), name.c_str(), 0700) == 0 ? 0 : errno;
  DORAJIT_ASSIGN(auto found, enter(name));
  if (found && error_number == 0 && is_shared(status_, trust_)) {
    ::fchmod(found->descriptor(), 0770 | (status_.st_mode & S_ISGID));
    ::fstat(found->descriptor(), &found->status_);
  }
  if (found) return *std::move(found);
  return std::unexpected(file_error("create folder", path_of(name),
                                    error_number == EEXIST ? ENOTDIR : error_number, trust_.place));
}

Result<std::optional<std::string>> TrustedDirectory::read_file(const std::string& name,
                                                               off_t max_bytes) const {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const FileDescriptor file(
      ::openat(descriptor(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  const auto failure = [&](std::string_view action, int error_number) {
    return std::unexpected(file_error(action, path_of(name), error_number, trust_.place));
  };
  if (!file) {
    const int error_number = errno;
    if (error_number == ENOENT) return std::nullopt;
    DORAJIT_TRY(check_file(name));
    return failure("open", error_number);
  }
  struct stat found{};
  if (::fstat(file.get(), &found) != 0) return failure("look at", errno);
  DORAJIT_TRY(check(found, path_of(name), &status_, trust_));
  if (!S_ISREG(found.st_mode) || found.st_size > max_bytes) return std::string();
  std::string bytes(static_cast<std::size_t>(found.st_size), '\0');
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failure("read", errno);
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  bytes.resize(filled);
  return bytes;
}

Status TrustedDirectory::check_file(const std::string& name) const {
  struct stat found{};
  if (::fstatat(descriptor(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0) {
    return check(found, path_of(name), &status_, trust_);
  }
  if (errno == ENOENT) return {};
  return std::unexpected(file_error("look at", path_of(name), errno, trust_.place));
}

mode_t TrustedDirectory::file_mode() const { return is_shared(status_, trust_) ? 0660 : 0600; }

std::string TrustedDirectory::held_path() const { return cache::held_path(descriptor_); }

}  // namespace dorajit::cache
