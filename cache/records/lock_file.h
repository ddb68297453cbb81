// Lock files: the config and the code that each problem must run with (docs/lock_file.md).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_templates/config.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

// One problem on one device. Without compiler, artifact and code, the kernel is a built-in one.
struct LockEntry {
  std::string device;   // fingerprint
  std::string problem;  // canonical problem key
  kernels::Config config{};
  std::string compiler;  // name and build number
  std::string artifact;  // key of the artifact
  std::string code;      // XXH3-128 of the compiled code, 32 hexadecimal digits

  friend bool operator==(const LockEntry&, const LockEntry&) = default;
};

// Sorted by device and problem, without duplicates: the first entry is kept. The same entries give
// the same text on every machine.
std::string to_lock_text(std::span<const LockEntry> entries);

// The inverse of to_lock_text(), in the same order. Any other text is an error that names the line:
// a lock file must be complete.
Result<std::vector<LockEntry>> parse_lock_text(std::string_view text);

// As parse_lock_text(); an error also names the file.
Result<std::vector<LockEntry>> read_lock_file(const std::string& path);

struct LockDifference {
  std::string_view field;  // "config", "compiler", "artifact" or "code"
  std::string first;
  std::string second;
};

// The fields in which two entries of one problem differ.
std::vector<LockDifference> differences(const LockEntry& first, const LockEntry& second);

}  // namespace dorajit::cache
