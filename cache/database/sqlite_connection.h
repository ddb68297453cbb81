// Owners of SQLite handles, SQLite's result codes as values, and write transactions.
#pragma once

#include <sqlite3.h>

#include <chrono>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cache/files/trusted_directory.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {

// One path per database folder, as SQLite requires, while any database in it is open.
//
// SQLite names the memory that processes share after the path under which this process first opened
// a database. All users of a folder must therefore use the same descriptor.
using HeldFolder = std::shared_ptr<const TrustedDirectory>;

// Returns the folder through the descriptor that this process already has for it, if any.
// Thread-safe; call it within Work::kSqlite.
HeldFolder hold(TrustedDirectory folder);

struct SqliteError {
  int code = SQLITE_ERROR;  // primary result code
  std::string message;      // the call or statement, the symbolic code, SQLite's message
};

template <class T>
using SqliteResult = std::expected<T, SqliteError>;
using SqliteStatus = SqliteResult<void>;

// The file's content is not what SQLite wrote, or reading it exceeds the step limit
// (limit_steps_by_size_of()).
bool is_damage(const SqliteError& error);
// The system failed, which says nothing about the file: reading it later may succeed.
bool is_failure_to_read(const SqliteError& error);
// Another connection holds a lock; a retry may succeed.
bool is_busy(const SqliteError& error);

// One prepared statement. Must not outlive its Connection.
class Statement {
 public:
  // Parameters count from 1. Text must stay valid until the last step(). The next step() reports a
  // failure to bind.
  void bind(int parameter, std::string_view text);
  void bind(int parameter, std::int64_t integer);
  void bind(int parameter, double real);  // NaN is bound as NULL, because SQLite stores it so
  // Binds the parameters from 1 on.
  template <class... Values>
  void bind_all(const Values&... values) {
    int parameter = 0;
    (bind(++parameter, values), ...);
  }

  // True: a row can be read. False: done.
  SqliteResult<bool> step();
  void reset();

  // Columns count from 0.
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] double real(int column) const;  // NULL reads as NaN

 private:
  friend class Connection;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bind_result_ = SQLITE_OK;
};

// Calls `visit` for each remaining row.
template <class Visit>
SqliteStatus for_each_row(Statement& statement, Visit visit) {
  for (;;) {
    DORAJIT_ASSIGN(const bool has_row, statement.step());
    if (!has_row) return {};
    visit(statement);
  }
}

// The bytes of a database and its WAL.
std::int64_t bytes_of_database(const std::string& path);

// One database connection, for the thread that opened it. Never creates a file.
class Connection {
 public:
  enum class Mode {
    kReadWrite,
    kReadOnly,
    // Only reads, but removes the files that a WAL needs beside the database when it closes, as
    // only a connection that may write does: for a database without a WAL.
    kTidyReading,
    kImmutable,  // read-only, without locks and WAL: only if nobody can write
  };

  static SqliteResult<Connection> open(const std::string& path, Mode mode);

  // From now on, statements fail as damaged if they take many more steps than reading the entire
  // file. For files whose pages may form cycles.
  void limit_steps_by_size_of(const std::string& path);

  // How long statements wait for other connections before they fail as busy.
  void set_busy_timeout(std::chrono::milliseconds wait);
  // From now on, closing writes nothing to the database file.
  void forbid_checkpoint_on_close();

  SqliteResult<Statement> prepare(std::string_view sql);
  // With the parameters bound, from 1 on.
  template <class... Values>
  SqliteResult<Statement> prepare(std::string_view sql, const Values&... values) {
    auto statement = prepare(sql);
    if (statement) statement->bind_all(values...);
    return statement;
  }
  SqliteStatus execute(const char* sql);  // any number of statements
  SqliteResult<std::int64_t> query_integer(std::string_view sql);
  SqliteResult<std::string> query_text(std::string_view sql);

  // The bytes of a file with the content of a database in memory.
  SqliteResult<std::string> serialize();

  [[nodiscard]] bool is_read_only() const;
  [[nodiscard]] bool in_transaction() const;

 private:
  struct Close {
    void operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
  };
  explicit Connection(sqlite3* handle) : handle_(handle) {}
  SqliteResult<Statement> query_row(std::string_view sql);

  static int count_steps(void* left);

  std::unique_ptr<FileSizeSignalBlock> no_signal_ = std::make_unique<FileSizeSignalBlock>();
  std::unique_ptr<std::int64_t> steps_left_;  // outlives the handle, which points to it
  std::unique_ptr<sqlite3, Close> handle_;
};

// Runs `body` between BEGIN IMMEDIATE and COMMIT. A failed transaction leaves no changes.
SqliteStatus write_in_transaction(Connection& connection,
                                  const std::function<SqliteStatus()>& body);

}  // namespace dorajit::cache
