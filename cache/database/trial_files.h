// Reads and writes files of trials: JSON Lines and tuning databases.
#pragma once

#include <cstdint>
#include <string>

#include "cache/records/trial_lines.h"
#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

enum class TrialFileKind { kLines, kDatabase };

// The content of a file, and its damage. Of a database, `bad_count` counts rows of trials and
// winners, and `bad` is empty.
struct TrialFile : ParsedTrials {
  TrialFileKind kind = TrialFileKind::kLines;
  std::int64_t winners = 0;  // number of valid ones, for a database

  [[nodiscard]] bool is_complete() const { return bad_count == 0 && damage.empty(); }
};

// Reads all valid trials and modifies nothing. The first bytes determine the kind of file. An error
// if nothing can be read: the file does not exist, is of another kind, was written by a newer
// dorajit, or is too large. Must not be used for a database that another thread of this process has
// open: SQLite would lose its locks on it.
Result<TrialFile> read_trial_file(const std::string& path);

}  // namespace dorajit::cache
