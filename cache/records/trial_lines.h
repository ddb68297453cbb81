// Trials as text, for exchange between machines: JSON Lines (docs/tuning_lines.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

struct TrialText {
  std::string lines;          // including the header and the closing line
  std::int64_t trials = 0;    // number of trials among the lines
  std::int64_t left_out = 0;  // trials with invalid UTF-8 or infinite values; tuning writes none
};

// Without duplicates, sorted by device, problem, time, host, config and checksum.
std::vector<const Trial*> each_once_in_order(std::span<const Trial> trials);

// Without duplicates, in the order of each_once_in_order(): the same trials give the same text.
TrialText to_lines(std::span<const Trial> trials, const Progress& progress = {});

struct BadLine {
  std::int64_t number = 0;  // counted from 1
  std::string reason;
};

struct ParsedTrials {
  std::vector<Trial> trials;
  std::int64_t bad_count = 0;
  std::vector<BadLine> bad;  // the first ones, in order
  std::string damage;        // why trials may be missing; empty: none are
};

inline constexpr std::size_t kMaxBadLinesNamed = 20;

// Skips each line that to_lines() would not write for a trial, checksum included, and trials from
// the future. Text without its closing line, such as an incomplete file, is damaged. An error for
// text that does not begin with the header, or begins with that of a newer format. `progress`
// counts bytes.
Result<ParsedTrials> parse_lines(std::string_view text, const Progress& progress = {});

}  // namespace dorajit::cache
