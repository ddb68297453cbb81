// How lock files differ, as text and JSON.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/terminal/output.h"
#include "cache/records/lock_file.h"

namespace dorajit::cli {

// Where lock entries come from: a file, or this machine.
struct LockSide {
  std::string name;
  std::vector<cache::LockEntry> entries;
};

// One problem that two sides run differently.
struct LockMismatch {
  std::string device;
  std::string problem;
  std::string second;        // name of the side that was compared with the first
  std::string missing_in{};  // name of the side that does not have it, if one does not
  std::vector<cache::LockDifference> differences{};
};

// The differences of `second` from `first`, by device and problem.
std::vector<LockMismatch> compare_locks(const LockSide& first, const LockSide& second);

std::string mismatches_text(const std::string& first, const std::vector<LockMismatch>& mismatches);
Json to_json(const LockMismatch& mismatch);
Json to_json(const cache::LockEntry& entry);

}  // namespace dorajit::cli
