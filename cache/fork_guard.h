// SQLite keeps state per process that a fork in the middle of a call leaves unusable in the child.
#pragma once

namespace dorajit::cache {

// Lives for as long as a thread has a database open. Databases are opened for one operation at a
// time, so a fork between operations carries nothing of SQLite into the child.
class SqliteUse {
 public:
  SqliteUse();
  SqliteUse(SqliteUse&& other) noexcept;
  SqliteUse& operator=(SqliteUse&&) = delete;
  ~SqliteUse();

 private:
  bool counted_ = true;
};

// True in a child that was forked while another thread of its parent was using SQLite: locks and
// tables of SQLite itself may be half changed, so it must not be called there.
bool sqlite_is_lost_to_fork();

}  // namespace dorajit::cache
