// How lock files differ, as text and JSON.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/terminal/output.h"
#include "cache/records/pins.h"

namespace dorajit::cli {

// Where lock entries come from: a file, or this machine.
struct PinSide {
  std::string name;
  std::vector<cache::Pin> entries;
};

// One problem that two sides run differently.
struct PinMismatch {
  std::string device;
  std::string problem;
  std::string second;        // name of the side that was compared with the first
  std::string missing_in{};  // name of the side that does not have it, if one does not
  std::vector<cache::PinDifference> differences{};
};

// The differences of `second` from `first`, by device and problem.
std::vector<PinMismatch> compare_pins(const PinSide& first, const PinSide& second);

std::string mismatches_text(const std::string& first, const std::vector<PinMismatch>& mismatches);
Json to_json(const PinMismatch& mismatch);
Json to_json(const cache::Pin& entry);

}  // namespace dorajit::cli
