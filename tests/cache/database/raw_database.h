// Direct access to a database file, as by another program.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdlib>
#include <string>

namespace dorajit::cache {

class RawDatabase {
 public:
  explicit RawDatabase(const std::string& path) {
    if (sqlite3_open(path.c_str(), &handle_) != SQLITE_OK) std::abort();
  }
  ~RawDatabase() { sqlite3_close(handle_); }
  RawDatabase(const RawDatabase&) = delete;
  RawDatabase& operator=(const RawDatabase&) = delete;

  bool run(const std::string& sql) {
    return sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
  }

  // The first column of the first row.
  std::string ask(const std::string& sql) {
    std::string answer;
    sqlite3_exec(
        handle_, sql.c_str(),
        [](void* out, int, char** values, char**) {
          *static_cast<std::string*>(out) = values[0] != nullptr ? values[0] : "NULL";
          return 1;
        },
        &answer, nullptr);
    return answer;
  }

 private:
  sqlite3* handle_ = nullptr;
};

}  // namespace dorajit::cache
