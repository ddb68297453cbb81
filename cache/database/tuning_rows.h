// Trials and winners as rows of tuning.db. Rows whose checksum or text is wrong are passed over.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/database/sqlite_connection.h"
#include "cache/records/tuning_records.h"

namespace dorajit::cache {

// Calls `each` with every trial and whether it was added: one that is there already is not added
// again.
SqliteStatus insert_trials(Connection& connection, std::span<const Trial> trials,
                           const std::function<void(const Trial&, bool added)>& each = {});
// Takes the place of an earlier winner of the same device and problem.
SqliteStatus put_winner(Connection& connection, const Winner& winner);
SqliteStatus delete_winner(Connection& connection, std::string_view device,
                           std::string_view problem);

SqliteResult<std::optional<Winner>> select_winner(Connection& connection, std::string_view device,
                                                  std::string_view problem);
// Ordered by device and problem.
SqliteResult<std::vector<Winner>> select_winners(Connection& connection);
// Those of problems of one variant, on every device.
SqliteResult<std::vector<Winner>> select_winners_of_variant(Connection& connection,
                                                            std::string_view variant);
// In the order of their insertion.
SqliteResult<std::vector<Trial>> select_trials(Connection& connection, std::string_view device,
                                               std::string_view problem);
// All of them, in the order of their insertion. Calls `each` with how many rows were read so far.
SqliteResult<std::vector<Trial>> select_trials(Connection& connection,
                                               const std::function<void(std::int64_t)>& each = {});
// Those on the device whose verdict is_bad().
SqliteResult<std::vector<Trial>> select_bad_trials(Connection& connection, std::string_view device);
SqliteResult<std::int64_t> count_trials(Connection& connection);

// For reading past damage: the good trials with first_id <= id <= last_id, and as many of the
// winners as can be read, appended to `rows` also when an error ends the walk.
SqliteStatus read_trials_between(Connection& connection, std::int64_t first_id,
                                 std::int64_t last_id, std::vector<Trial>& rows);
SqliteStatus read_winners(Connection& connection, std::vector<Winner>& rows);

}  // namespace dorajit::cache
