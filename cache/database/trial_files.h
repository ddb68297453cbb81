// Reads and writes files of trials: JSON Lines and tuning databases.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/records/trial_lines.h"
#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

enum class TrialFileKind { kLines, kDatabase };

// The content of a file, and its damage.
struct TrialFile {
  TrialFileKind kind = TrialFileKind::kLines;
  std::vector<Trial> trials;   // the valid ones
  std::int64_t winners = 0;    // number of valid ones, for a database
  std::int64_t bad_count = 0;  // invalid lines, or invalid rows of trials and winners
  std::vector<BadLine> bad;    // for JSON Lines
  std::string damage;          // damage of the entire file; empty: none

  [[nodiscard]] bool is_complete() const { return bad_count == 0 && damage.empty(); }
};

// Reads all valid trials and modifies nothing. The first bytes determine the kind of file. An error
// if nothing can be read: the file does not exist, is of another kind, was written by a newer
// dorajit, or is too large. Must not be used for a database that another thread of this process has
// open: SQLite would lose its locks on it.
Result<TrialFile> read_trial_file(const std::string& path, const Progress& progress = {});

// Replaces the file at `path` with the trials. Counts the trials that were left out, as to_lines()
// does.
Result<TrialText> write_trial_file(const std::string& path, std::span<const Trial> trials,
                                   const Progress& progress = {});

// Atomically replaces the file at `path` with a read-only database, as installations ship them, of
// the trials, without duplicates, and their winners. With one version of SQLite, the same trials
// give the same bytes.
Status write_shipped_database(const std::string& path, std::span<const Trial> trials);

}  // namespace dorajit::cache
