#include "cache/database/inspection.h"

#include <sys/stat.h>

#include <cerrno>
#include <format>
#include <utility>

#include "cache/database/schema.h"

namespace dorajit::cache {
namespace {

// A check takes about 1 ms for a file of this size, which is the limit for an open.
constexpr off_t kCheapToCheckBytes = off_t{512} << 10;

Inspection outcome(FileState state, std::string reason) {
  Inspection inspection;
  inspection.state = state;
  inspection.reason = std::move(reason);
  return inspection;
}

Inspection outcome(const SqliteError& error) {
  if (is_damage(error)) return outcome(FileState::kDamaged, error.message);
  if (is_busy(error)) return outcome(FileState::kBusy, error.message);
  return outcome(FileState::kUnusable, error.message);
}

// SQLite's checks report a page that could not be read, after an I/O error or for lack of memory,
// like a damaged one.
bool is_about_unread_page(const std::string& verdict) {
  return verdict.contains("unable to get the page") || verdict.contains("failed to get page");
}

const char* check_statement(CheckDepth depth, off_t bytes) {
  if (depth == CheckDepth::kWhole) return "PRAGMA integrity_check(1)";
  if (depth == CheckDepth::kStructure && bytes <= kCheapToCheckBytes) {
    return "PRAGMA quick_check(1)";
  }
  return nullptr;
}

}  // namespace

Inspection inspect(const std::string& path, Connection::Mode mode, CheckDepth depth,
                   std::chrono::milliseconds wait, FilePlace place) {
  // Besides SQLite, only stat() is used: closing a descriptor of the file would release the locks
  // that SQLite holds on it in this process.
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return outcome(FileState::kAbsent, {});
    return outcome(FileState::kUnusable, file_error("stat", path, errno, place).message);
  }
  if (!S_ISREG(info.st_mode))
    return outcome(FileState::kUnusable, shown_path(path) + " is not a file");
  if (info.st_size == 0) return outcome(FileState::kDamaged, "the file is empty");

  auto connection = Connection::open(path, mode);
  if (!connection) return outcome(connection.error());
  connection->set_busy_timeout(wait);
  if (mode != Connection::Mode::kReadWrite) connection->limit_steps_by_size_of(path);

  const auto application = connection->query_integer("PRAGMA application_id");
  if (!application) return outcome(application.error());
  if (*application != kApplicationId) {
    return outcome(FileState::kDamaged,
                   std::format("its application id is {:#x}, not dorajit's", *application));
  }
  const auto version = connection->query_integer("PRAGMA user_version");
  if (!version) return outcome(version.error());
  if (*version > kSchemaVersion) {
    if (mode == Connection::Mode::kReadWrite) connection->forbid_checkpoint_on_close();
    return outcome(FileState::kNewer,
                   std::format("{} has schema version {}, written by a newer dorajit (this one "
                               "supports {}): update dorajit",
                               shown_path(path), *version, kSchemaVersion));
  }
  if (*version < kSchemaVersion) return outcome(FileState::kDamaged, "it has no schema version");
  const auto difference = difference_from_schema(*connection);
  if (!difference) return outcome(difference.error());
  if (!difference->empty()) return outcome(FileState::kDamaged, *difference);

  if (const char* check = check_statement(depth, info.st_size); check != nullptr) {
    const auto verdict = connection->query_text(check);
    if (!verdict) return outcome(verdict.error());
    if (is_about_unread_page(*verdict)) {
      return outcome(FileState::kUnusable, "it cannot be read completely: " + *verdict);
    }
    if (*verdict != "ok") return outcome(FileState::kDamaged, *verdict);
  }
  Inspection inspection;
  inspection.state = FileState::kUsable;
  inspection.connection = *std::move(connection);
  return inspection;
}

}  // namespace dorajit::cache
