// What processes are held to: the config and the code of each problem (docs/lock_file.md).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_templates/config.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

// One problem on one device. Without compiler, artifact and code the kernel is the library's own.
struct LockEntry {
  std::string device;   // fingerprint
  std::string problem;  // canonical problem key
  kernels::Config config{};
  std::string compiler;  // name and build number
  std::string artifact;  // key of the artifact
  std::string code;      // XXH3-128 of the compiled code, 32 hexadecimal digits

  friend bool operator==(const LockEntry&, const LockEntry&) = default;
};

// Ordered by device and problem, each once: of several the first. The same entries are the same
// text, whoever writes them.
std::string to_lock_text(std::span<const LockEntry> entries);

// All that to_lock_text() wrote, in its order. An error that names the line for anything else: who
// is held to a file wants all of it.
Result<std::vector<LockEntry>> parse_lock_text(std::string_view text);

// An error names the file.
Result<std::vector<LockEntry>> read_lock_file(const std::string& path);

struct LockDifference {
  std::string_view field;  // "config", "compiler", "artifact" or "code"
  std::string first;
  std::string second;
};

// In what two entries of one problem differ.
std::vector<LockDifference> differences(const LockEntry& first, const LockEntry& second);

}  // namespace dorajit::cache
