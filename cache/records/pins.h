// Pins: the config, and the code, that problems must run with (docs/lock_file.md).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/files/trusted_directory.h"
#include "kernel_templates/config.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

// One problem on one device. Without compiler, artifact and code, the kernel is a built-in one.
struct Pin {
  std::string device;   // fingerprint
  std::string problem;  // canonical problem key
  kernels::Config config{};
  std::string compiler;  // name and build number
  std::string artifact;  // key of the artifact
  std::string code;      // XXH3-128 of the compiled code, 32 hexadecimal digits

  friend bool operator==(const Pin&, const Pin&) = default;
};

// Sorted by device and problem, without duplicates: the first entry is kept. The same entries give
// the same text on every machine.
std::string to_pin_text(std::span<const Pin> entries);

// The inverse of to_pin_text(), in the same order. Any other text is an error that names the line:
// a file of pins must be complete.
Result<std::vector<Pin>> parse_pin_text(std::string_view text);

// As parse_pin_text(); an error also names the file.
Result<std::vector<Pin>> read_pin_file(const std::string& path);

struct PinDifference {
  std::string_view field;  // "config", "compiler", "artifact" or "code"
  std::string first;
  std::string second;
};

// The fields in which two entries of one problem differ.
std::vector<PinDifference> differences(const Pin& first, const Pin& second);

// A file of pins that was read, for messages that name it.
struct PinFile {
  std::string path;
  std::vector<Pin> pins;
};

// What the user has pinned: the file `pins.jsonl` of a cache folder, which every call reads again,
// so that a change holds from the next look-up of any process on; or a file that was read before,
// which then says all (DORAJIT_LOCKED). Thread-safe, and any number of processes may share a
// folder.
class Pins {
 public:
  // With an empty `cache_dir` there are none, and none can be added.
  Pins(const std::string& cache_dir, const Trust& trust, std::optional<PinFile> all = {})
      : cache_dir_(cache_dir), trust_(trust), all_(std::move(all)) {}

  // The path of the file that says all: problems that it does not have are not to be tuned. Null
  // where it is that of the folder.
  [[nodiscard]] const std::string* locked_path() const { return all_ ? &all_->path : nullptr; }

  // Ordered by device and problem. An error for a file that cannot be used.
  [[nodiscard]] Result<std::vector<Pin>> read() const;

  // A file that cannot be used has none, and a warning says so once.
  [[nodiscard]] std::optional<Pin> find(std::string_view device, std::string_view problem) const;

  // Adds the pin in place of an earlier one of its problem to the folder's file. An error where it
  // is not kept.
  [[nodiscard]] Status add(const Pin& pin) const;
  // Whether there was one.
  [[nodiscard]] Result<bool> remove(std::string_view device, std::string_view problem) const;

 private:
  [[nodiscard]] Status change(const std::function<void(std::vector<Pin>&)>& edit) const;

  const std::string cache_dir_;
  const Trust trust_;
  const std::optional<PinFile> all_;
};

}  // namespace dorajit::cache
