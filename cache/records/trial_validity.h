// The values that a trial or winner may have, wherever it was read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cache/records/tuning_records.h"

namespace dorajit::cache {

inline constexpr std::size_t kMaxTextBytes = 1024;
inline constexpr std::int64_t kMaxSamples = 1'000'000'000;
inline constexpr std::int64_t kMaxUnixSeconds = 253'402'300'799;  // the year 9999

// What is wrong with a text or a number of the record; empty if nothing is. Texts are shown on
// terminals, so they must be printable lines (runtime/base/printable_text.h).
std::string fault_of(const Trial& trial);
std::string fault_of(const Winner& winner);

// The latest valid time stamp, in seconds since 1970: a day ahead of this machine's clock.
std::int64_t latest_plausible_time();

}  // namespace dorajit::cache
