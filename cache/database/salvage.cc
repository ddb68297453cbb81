#include "cache/database/salvage.h"

#include <algorithm>
#include <cstdint>

#include "cache/database/schema.h"
#include "cache/database/schema_check.h"
#include "cache/database/sqlite_connection.h"
#include "cache/database/tuning_rows.h"

namespace dorajit::cache {
namespace {

// About the rows of one b-tree page: a damaged page then costs only a few such ranges.
constexpr std::int64_t kIdsPerRange = 16;

// How many times as many ids as rows there may be, because `dorajit forget` deletes rows.
constexpr std::int64_t kRoomForGaps = 4;

// Smaller than the smallest row with its cell.
constexpr std::int64_t kMinRowBytes = 64;

// The file's size bounds the ids: few rows are ever deleted, and a row takes several times the
// minimum size, which leaves room for gaps. The ids in the rows cannot be used: a forged id may be
// any number.
std::int64_t largest_possible_id(const std::string& path) {
  return kRoomForGaps * bytes_of_database(path) / kMinRowBytes;
}

// Each range is a new search from the root, so damage in one range does not hide the others.
void read_range_by_range(Connection& connection, const std::string& path,
                         std::vector<Trial>& trials) {
  const std::int64_t last_id = largest_possible_id(path);
  for (std::int64_t id = 1; id <= last_id; id += kIdsPerRange) {
    std::vector<Trial> range;
    if (read_trials_between(connection, id, id + kIdsPerRange - 1, range)) {
      std::ranges::move(range, std::back_inserter(trials));
      continue;
    }
    for (std::int64_t one = id; one < id + kIdsPerRange; ++one) {
      (void)read_trials_between(connection, one, one, trials);
    }
  }
}

}  // namespace

Salvaged salvage(const std::string& path) {
  Salvaged rows;
  auto connection = Connection::open(path, Connection::Mode::kReadWrite);
  if (!connection) return rows;
  // A database of another program may have tables of the same names.
  const auto application = connection->query_integer("PRAGMA application_id");
  if (!application || *application != kApplicationId) return rows;
  // A table with another definition may return rows without end.
  const auto is_ours = [&](const char* table) {
    return is_table_of_schema(*connection, table).value_or(false);
  };
  connection->limit_steps_by_size_of(path);
  if (is_ours("trials")) read_range_by_range(*connection, path, rows.trials);
  if (is_ours("winners")) (void)read_winners(*connection, rows.winners);
  connection->close_without_checkpoint();
  return rows;
}

}  // namespace dorajit::cache
