// Databases that are only read, and that nobody writes while they are.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/database/sqlite_connection.h"
#include "cache/files/trusted_directory.h"
#include "cache/records/tuning_records.h"
#include "runtime/base/error.h"

namespace dorajit::cache {

inline constexpr Trust kOverlayTrust{.place = FilePlace::kDatabases};

// The *.db of a folder, in the order of their names. Empty for no folder; where it cannot be read,
// or `trust` does not let it pass, a warning says so.
std::vector<std::string> databases_in(const std::string& folder,
                                      const Trust& trust = kOverlayTrust);

// Of one such database, read whole; an error where it cannot be used.
Result<std::int64_t> count_overlay_winners(const std::string& path,
                                           const Trust& trust = kOverlayTrust);

// Thread-safe. Holds no handle, so it survives fork(). Needs no writable folder, and leaves nothing
// beside the files. One that is missing, damaged or of a newer dorajit is passed over for the rest
// of the process, as is one that others may have written, and one warning says why.
class OverlayDatabases {
 public:
  OverlayDatabases(std::span<const std::string> paths, const Trust& trust);

  // Of the first that has one.
  std::optional<Winner> find_winner(std::string_view device, std::string_view problem);
  // Those of problems of a variant on any device, database by database.
  std::vector<Winner> winners_of_variant(std::string_view variant);

 private:
  struct Overlay {
    explicit Overlay(std::string file) : path(std::move(file)) {}
    std::string path;
    std::atomic<bool> checked{false};  // this process has seen the file whole once
    std::atomic<bool> passed_over{false};
  };
  // What `select` makes of the database, or a value-initialised result where it cannot be used.
  template <class Select>
  auto read(Overlay& overlay, Select select) const;
  static void pass_over(Overlay& overlay, std::string_view reason);

  const Trust trust_;
  std::deque<Overlay> overlays_;  // elements stay where they are
};

}  // namespace dorajit::cache
