// Whether a kernel computes the right bits.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "autotune/search/journal_entry.h"
#include "autotune/search/scratch_operands.h"
#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"
#include "runtime/launch/kernel_cache.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// Small inputs of a problem's columns (about 2^20 of them at most) and alignment class, and the
// bits that the op makes of them: two seeds on several rows, a ragged shape whose last vector and
// last block are cut short, and, for sums, shapes that have several partial sums. The truth is the
// host reference, which the default config has to meet first.
class Verifier {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Computes that truth, which takes tens of milliseconds. An error if the memory does not suffice,
  // or if it is not done by the deadline.
  static Result<Verifier> make(const launch::Problem& problem, device::Device& device,
                               Deadline deadline = Deadline::max());

  // Where the operation has a tolerance, the first kernel that is within it of the reference says
  // which bits the others must give.
  //
  // Runs the kernel on poisoned outputs, each time entered in the journal at `place`. kOk if every
  // byte is right, padding between rows untouched included; kWrongBits if not; kOutOfBounds if it
  // wrote anything that is not its to write: an input, or before or past an operand or the
  // workspace. An error if it cannot be launched.
  Result<cache::Verdict> check(const launch::ReadyKernel& kernel, const JournalPlace& place = {});

 private:
  struct Case {
    ScratchOperands operands;
    std::vector<std::byte> image;     // of the operands before a launch
    std::vector<std::byte> expected;  // and after it
    ScratchOperands::Closeness closeness;
  };

  explicit Verifier(device::Device& device) : device_(&device) {}

  device::Device* device_;
  std::vector<Case> cases_;
};

}  // namespace dorajit::autotune
