// Trials as text, to be exchanged between machines: JSON Lines (docs/tuning_lines.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records/progress.h"
#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

struct TrialText {
  std::string lines;          // the header first, the closing line last
  std::int64_t trials = 0;    // how many of the lines are trials
  std::int64_t left_out = 0;  // trials that are no UTF-8 or not finite, as no tuning writes them
};

// Each trial once, in an order of their own: device, problem, time, host, config, checksum.
std::vector<const Trial*> each_once_in_order(std::span<const Trial> trials);

// Each trial once, in an order of their own: the same trials are the same text.
TrialText to_lines(std::span<const Trial> trials, const Progress& progress = {});

struct BadLine {
  std::int64_t number = 0;  // counted from 1
  std::string reason;
};

struct ParsedTrials {
  std::vector<Trial> trials;
  std::int64_t bad_count = 0;
  std::vector<BadLine> bad;  // the first of them, in their order
  std::string damage;        // why these may not be all trials; empty: they are
};

inline constexpr std::size_t kMaxBadLinesNamed = 20;

// Passes over each line that is not exactly what to_lines() writes for some trial, checksum and
// all, and over trials from the future. Text without its closing line, as what is left of a file
// that was cut, is damaged. An error for text that does not begin with the header, or with that of
// a newer format.
// `progress` counts bytes.
Result<ParsedTrials> parse_lines(std::string_view text, const Progress& progress = {});

}  // namespace dorajit::cache
