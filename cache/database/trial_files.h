// Files that trials can be read from: JSON Lines and tuning databases.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/records/progress.h"
#include "cache/records/trial_lines.h"
#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

enum class TrialFileKind { kLines, kDatabase };

// What a file holds, and what of it is bad.
struct TrialFile {
  TrialFileKind kind = TrialFileKind::kLines;
  std::vector<Trial> trials;   // the good ones
  std::int64_t winners = 0;    // good ones, of a database
  std::int64_t bad_count = 0;  // lines, or rows of trials and winners
  std::vector<BadLine> bad;    // of JSON Lines
  std::string damage;          // of the file as a whole; empty: none

  [[nodiscard]] bool is_whole() const { return bad_count == 0 && damage.empty(); }
};

// Reads all that is good, and changes nothing. Which kind a file is, its first bytes tell. An error
// when nothing can be read: no such file, another kind of file, one of a newer dorajit, or too
// large. Not for a database that another thread of this process has open: SQLite would lose its
// locks on it.
Result<TrialFile> read_trial_file(const std::string& path, const Progress& progress = {});

// Puts the trials in the place of what is at `path`. How many were left out, as by to_lines().
Result<TrialText> write_trial_file(const std::string& path, std::span<const Trial> trials,
                                   const Progress& progress = {});

}  // namespace dorajit::cache
