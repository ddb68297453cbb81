#include "cache/database/sqlite_connection.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <format>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "cache/files/directories.h"
#include "runtime/base/printable_text.h"

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

const char* make_held_folder_vfs() {
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

// The name of an SQLite VFS like the default one, except that it takes a path through the
// descriptor of an open folder (TrustedDirectory::held_path) as complete. The default VFS would
// resolve the folder's name and open that path, which may be a different folder by then. Null if
// there is no such VFS.
const char* held_folder_vfs() {
  static const char* const name = make_held_folder_vfs();
  return name;
}

using NamedCode = std::pair<int, std::string_view>;
constexpr NamedCode kCodes[] = {
    {SQLITE_ERROR, "SQLITE_ERROR"},           {SQLITE_BUSY, "SQLITE_BUSY"},
    {SQLITE_LOCKED, "SQLITE_LOCKED"},         {SQLITE_NOMEM, "SQLITE_NOMEM"},
    {SQLITE_READONLY, "SQLITE_READONLY"},     {SQLITE_IOERR, "SQLITE_IOERR"},
    {SQLITE_CORRUPT, "SQLITE_CORRUPT"},       {SQLITE_FULL, "SQLITE_FULL"},
    {SQLITE_CANTOPEN, "SQLITE_CANTOPEN"},     {SQLITE_PROTOCOL, "SQLITE_PROTOCOL"},
    {SQLITE_CONSTRAINT, "SQLITE_CONSTRAINT"}, {SQLITE_INTERRUPT, "SQLITE_INTERRUPT"},
    {SQLITE_TOOBIG, "SQLITE_TOOBIG"},         {SQLITE_NOTADB, "SQLITE_NOTADB"}};

std::string_view symbol(int code) {
  const auto* const found = std::ranges::find(kCodes, code, &NamedCode::first);
  return found != std::end(kCodes) ? found->second : "SQLITE error";
}

// Whether the system has refused this connection an access to the database or its WAL.
bool has_system_error(sqlite3* handle) {
  int of_database = 0;
  int of_wal = 0;
  sqlite3_file* wal = nullptr;
  sqlite3_file_control(handle, "main", SQLITE_FCNTL_LAST_ERRNO, &of_database);
  sqlite3_file_control(handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, static_cast<void*>(&wal));
  if (wal != nullptr && wal->pMethods != nullptr) {
    wal->pMethods->xFileControl(wal, SQLITE_FCNTL_LAST_ERRNO, &of_wal);
  }
  return of_database != 0 || of_wal != 0;
}

std::unexpected<SqliteError> sqlite_error(sqlite3* handle, std::string_view what, int code) {
  // SQLite reports EIO as damage.
  if ((code & 0xff) == SQLITE_CORRUPT && handle != nullptr && has_system_error(handle)) {
    return sqlite_error(nullptr, what, SQLITE_IOERR);
  }
  // Escaped, because SQLite quotes names that it found in the file.
  const std::string message =
      printable_line(handle != nullptr ? sqlite3_errmsg(handle) : sqlite3_errstr(code));
  return std::unexpected(
      SqliteError{code & 0xff, std::format("{}: {} ({})", what, symbol(code & 0xff), message)});
}

std::int64_t size_of(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? std::int64_t{info.st_size} : 0;
}

// dorajit's databases have neither views nor triggers, and no value or statement near that length.
void bound_what_a_file_may_do(sqlite3* handle) {
  sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, 16 << 20);
  sqlite3_limit(handle, SQLITE_LIMIT_ATTACHED, 0);
  // A file that shrinks while it is mapped is a SIGBUS.
  sqlite3_exec(handle, "PRAGMA mmap_size = 0; PRAGMA cell_size_check = ON", nullptr, nullptr,
               nullptr);
}

// The path may contain characters with a meaning in a URI.
std::string immutable_uri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= '0' && byte <= '9') || c == '/' || c == '.' || c == '-' || c == '_';
    uri += plain ? std::string(1, c) : std::format("%{:02X}", byte);
  }
  return uri + "?immutable=1";
}

}  // namespace

HeldFolder hold(TrustedDirectory folder) {
  // Never destroyed, so that a thread that outlives main() can still use them.
  static auto& mutex = *new std::mutex();
  static auto& folders =
      *new std::map<std::pair<dev_t, ino_t>, std::weak_ptr<const TrustedDirectory>>();
  // The last user lets go under the mutex, because ThreadSanitizer does not see libc++'s counts
  // order that before the assignment below, which frees the counts.
  const auto let_go = [](const TrustedDirectory* unused) {
    const std::scoped_lock last(mutex);
    std::default_delete<const TrustedDirectory>()(unused);
  };
  HeldFolder made(std::make_unique<const TrustedDirectory>(std::move(folder)).release(), let_go);
  const std::scoped_lock lock(mutex);  // released before `made`
  auto& known = folders[{made->status().st_dev, made->status().st_ino}];
  if (HeldFolder held = known.lock()) return held;
  known = made;
  return made;
}

std::int64_t bytes_of_database(const std::string& path) {
  return size_of(path) + size_of(path + "-wal");
}

bool is_damage(const SqliteError& error) {
  return error.code == SQLITE_CORRUPT || error.code == SQLITE_NOTADB ||
         error.code == SQLITE_INTERRUPT;
}

bool is_failure_to_read(const SqliteError& error) {
  return error.code == SQLITE_IOERR || error.code == SQLITE_NOMEM ||
         error.code == SQLITE_CANTOPEN || is_busy(error);
}

bool is_busy(const SqliteError& error) {
  return error.code == SQLITE_BUSY || error.code == SQLITE_LOCKED || error.code == SQLITE_PROTOCOL;
}

void Statement::bind(int parameter, std::string_view text) {
  // A null pointer would bind NULL.
  const char* data = text.data() != nullptr ? text.data() : "";
  const int result = sqlite3_bind_text64(statement_.get(), parameter, data, text.size(),
                                         SQLITE_STATIC, SQLITE_UTF8);
  if (bind_result_ == SQLITE_OK) bind_result_ = result;
}

void Statement::bind(int parameter, std::int64_t integer) {
  const int result = sqlite3_bind_int64(statement_.get(), parameter, integer);
  if (bind_result_ == SQLITE_OK) bind_result_ = result;
}

void Statement::bind(int parameter, double real) {
  const int result = std::isnan(real) ? sqlite3_bind_null(statement_.get(), parameter)
                                      : sqlite3_bind_double(statement_.get(), parameter, real);
  if (bind_result_ == SQLITE_OK) bind_result_ = result;
}

SqliteResult<bool> Statement::step() {
  const int result = bind_result_ != SQLITE_OK ? bind_result_ : sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  return sqlite_error(sqlite3_db_handle(statement_.get()), sqlite3_sql(statement_.get()), result);
}

void Statement::reset() {
  sqlite3_reset(statement_.get());
  bind_result_ = SQLITE_OK;
}

std::string Statement::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

double Statement::real(int column) const {
  if (sqlite3_column_type(statement_.get(), column) == SQLITE_NULL) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return sqlite3_column_double(statement_.get(), column);
}

SqliteResult<Connection> Connection::open(const std::string& path, Mode mode) {
  sqlite3* handle = nullptr;
  int result = SQLITE_OK;
  if (mode == Mode::kImmutable) {
    result = sqlite3_open_v2(immutable_uri(path).c_str(), &handle,
                             SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX,
                             held_folder_vfs());
  } else {
    const int access = mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    result =
        sqlite3_open_v2(path.c_str(), &handle, access | SQLITE_OPEN_NOMUTEX, held_folder_vfs());
  }
  // SQLite returns a handle that must be closed even if opening fails.
  Connection connection(handle);
  if (result != SQLITE_OK) return sqlite_error(handle, "open " + shown_path(path), result);
  bound_what_a_file_may_do(handle);
  return connection;
}

int Connection::count_steps(void* left) { return --*static_cast<std::int64_t*>(left) <= 0 ? 1 : 0; }

void Connection::limit_steps_by_size_of(const std::string& path) {
  // Checking a database completely and reading every row takes about 2 steps per byte.
  constexpr std::int64_t kStepsPerByte = 16;
  constexpr std::int64_t kMinSteps = 10'000'000;
  constexpr int kStepsPerCall = 1000;
  const std::int64_t steps = kMinSteps + kStepsPerByte * bytes_of_database(path);
  steps_left_ = std::make_unique<std::int64_t>(steps / kStepsPerCall);
  sqlite3_progress_handler(handle_.get(), kStepsPerCall, &count_steps, steps_left_.get());
}

void Connection::set_busy_timeout(std::chrono::milliseconds wait) {
  sqlite3_busy_timeout(handle_.get(), static_cast<int>(wait.count()));
}

void Connection::forbid_checkpoint_on_close() {
  sqlite3_db_config(handle_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

SqliteResult<Statement> Connection::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int result = sqlite3_prepare_v2(handle_.get(), sql.data(), static_cast<int>(sql.size()),
                                        &statement, nullptr);
  if (result != SQLITE_OK) return sqlite_error(handle_.get(), sql, result);
  return Statement(statement);
}

SqliteStatus Connection::execute(const char* sql) {
  const int result = sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) return sqlite_error(handle_.get(), sql, result);
  return {};
}

SqliteResult<Statement> Connection::query_row(std::string_view sql) {
  auto statement = prepare(sql);
  if (!statement) return statement;
  DORAJIT_ASSIGN(const auto row, statement->step());
  if (!row) return sqlite_error(nullptr, sql, SQLITE_ERROR);
  return statement;
}

SqliteResult<std::int64_t> Connection::query_integer(std::string_view sql) {
  return query_row(sql).transform([](const Statement& row) { return row.integer(0); });
}

SqliteResult<std::string> Connection::query_text(std::string_view sql) {
  return query_row(sql).transform([](const Statement& row) { return row.text(0); });
}

SqliteResult<std::string> Connection::serialize() {
  sqlite3_int64 size = 0;
  const std::unique_ptr<unsigned char, decltype(&sqlite3_free)> bytes(
      sqlite3_serialize(handle_.get(), "main", &size, 0), &sqlite3_free);
  if (!bytes) return sqlite_error(nullptr, "serialize", SQLITE_NOMEM);
  return std::string(reinterpret_cast<const char*>(bytes.get()), static_cast<std::size_t>(size));
}

bool Connection::is_read_only() const { return sqlite3_db_readonly(handle_.get(), "main") == 1; }

bool Connection::in_transaction() const { return sqlite3_get_autocommit(handle_.get()) == 0; }

SqliteStatus write_in_transaction(Connection& connection,
                                  const std::function<SqliteStatus()>& body) {
  auto status = connection.execute("BEGIN IMMEDIATE");
  if (status) status = body();
  if (status) status = connection.execute("COMMIT");
  // Some errors roll back automatically.
  if (!status && connection.in_transaction()) (void)connection.execute("ROLLBACK");
  return status;
}

}  // namespace dorajit::cache
