// How lock files differ, for people and programs.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/terminal/output.h"
#include "cache/records/lock_file.h"

namespace dorajit::cli {

// Something that entries of locks come from: a file, or this machine.
struct LockSide {
  std::string name;
  std::vector<cache::LockEntry> entries;
};

// One problem that two sides do not run alike.
struct LockMismatch {
  std::string device;
  std::string problem;
  std::string second;      // name of the side that the first one was compared with
  std::string missing_in;  // name of the side that does not have it, if one does not
  std::vector<cache::LockDifference> differences;
};

// What `second` has otherwise than `first`, by device and problem.
std::vector<LockMismatch> compare_locks(const LockSide& first, const LockSide& second);

std::string mismatches_text(const std::string& first, const std::vector<LockMismatch>& mismatches);
Json to_json(const LockMismatch& mismatch);
Json to_json(const cache::LockEntry& entry);

}  // namespace dorajit::cli
