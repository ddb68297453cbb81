// Attacks on files and folders that a process uses, and the expected messages.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "tests/fakes/temporary_directory.h"
#include "tests/hostile/hostile_users.h"

namespace dorajit::hostile {

enum class What {
  kOwner,  // belongs to another user
  kMode,   // others have rights on it
  kLink,   // it was moved elsewhere and replaced by a symbolic link
  kFifo,   // this and the following: another kind of file, or a size beyond memory
  kDirectory,
  kPlainFile,
  kEndless,
};

inline constexpr const char* kForeign = "belongs to user 54321";
inline constexpr const char* kEverybody = "can be written by every user";
inline constexpr const char* kGroup = "DORAJIT_TRUST_GROUP=1";
inline constexpr const char* kLinked = "is a symbolic link";

// Whether other users may have written it or may hold it open.
inline bool is_foreign(What what) {
  return what == What::kOwner || what == What::kMode || what == What::kLink;
}

// `elsewhere` is the place to which kLink moves `target`. Files of another kind belong to `owner`.
inline void apply(What what, unsigned mode, const std::string& target, const std::string& elsewhere,
                  uid_t owner = ::geteuid()) {
  namespace fs = std::filesystem;
  constexpr off_t kEndlessBytes = off_t{1} << 40;
  if (!is_foreign(what)) fs::remove_all(target);
  switch (what) {
    case What::kOwner:
      ASSERT_EQ(::chown(target.c_str(), kAttacker, kAttacker), 0);
      return;
    case What::kMode:
      ASSERT_EQ(::chmod(target.c_str(), mode), 0);
      return;
    case What::kLink:
      fs::rename(target, elsewhere);
      fs::create_symlink(elsewhere, target);
      return;
    case What::kFifo:
      ASSERT_EQ(::mkfifo(target.c_str(), mode), 0);
      break;
    case What::kDirectory:
      fs::create_directory(target);
      break;
    case What::kPlainFile:
    case What::kEndless:
      cache::write_file(target, "");
      ASSERT_EQ(::chmod(target.c_str(), 0600), 0);
      if (what == What::kEndless) ASSERT_EQ(::truncate(target.c_str(), kEndlessBytes), 0);
      break;
  }
  ASSERT_EQ(::chown(target.c_str(), owner, static_cast<gid_t>(owner)), 0);
}

// Why this process cannot perform that attack.
inline std::optional<std::string> why_not(uid_t victim, What what) {
  if (victim != ::geteuid() && !is_root()) return "only root can be another user";
  if (what == What::kOwner && !is_root()) return "only root can give files away";
  return std::nullopt;
}

}  // namespace dorajit::hostile
