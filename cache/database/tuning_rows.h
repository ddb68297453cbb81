// Trials and winners as rows of tuning.db. Rows with an invalid checksum or text are skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/database/sqlite_connection.h"
#include "cache/database/tuning_store.h"
#include "cache/records/tuning_records.h"

namespace dorajit::cache {

// The bytes of a database of the records, made in memory.
SqliteResult<std::string> database_bytes(std::span<const Trial> trials,
                                         std::span<const Winner> winners);
// Replaces an earlier winner of the same device and problem.
SqliteStatus put_winner(Connection& connection, const Winner& winner);
// All that is known of a problem on a device; empty text stands for any.
SqliteResult<ForgottenCounts> delete_records(Connection& connection, std::string_view device,
                                             std::string_view problem);

// On the device, or else on the one of its model (cache/records/tuning_records.h) whose memory is
// nearest.
SqliteResult<std::optional<Winner>> select_winner(Connection& connection, std::string_view device,
                                                  std::string_view problem);
// Sorted by device and problem.
SqliteResult<std::vector<Winner>> select_winners(Connection& connection);
// The winners of one variant's problems on all devices.
SqliteResult<std::vector<Winner>> select_winners_of_variant(Connection& connection,
                                                            std::string_view variant);
// In order of insertion; all of them without a device.
SqliteResult<std::vector<Trial>> select_trials(Connection& connection, std::string_view device = {},
                                               std::string_view problem = {});
// The trials on devices of its model whose verdict is_bad().
SqliteResult<std::vector<Trial>> select_bad_trials(Connection& connection, std::string_view device);

// For reading a damaged database: appends to `rows` the valid trials with first_id <= id <= last_id
// and all readable winners, even if an error ends the walk.
SqliteStatus read_trials_between(Connection& connection, std::int64_t first_id,
                                 std::int64_t last_id, std::vector<Trial>& rows);
SqliteStatus read_winners(Connection& connection, std::vector<Winner>& rows);

// Adds the trials and derives the winners of the problems with new trials.
SqliteResult<MergeCounts> merge_trials(Connection& connection, std::span<const Trial> trials,
                                       const Progress& progress = {});

// Derives all winners and returns their number.
SqliteResult<std::int64_t> derive_winners(Connection& connection);

}  // namespace dorajit::cache
