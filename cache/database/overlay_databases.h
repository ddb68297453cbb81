// Read-only databases. Nobody writes to them while they are in use.
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

// The *.db files of a folder, sorted by name. Empty if `folder` is empty; if the folder cannot be
// read, or `trust` does not accept it, a warning is logged.
std::vector<std::string> databases_in(const std::string& folder,
                                      const Trust& trust = kOverlayTrust);

// Reads one such database completely; an error if it cannot be used.
Result<std::int64_t> count_overlay_winners(const std::string& path,
                                           const Trust& trust = kOverlayTrust);

// Thread-safe. Holds no open handle, so it survives fork(). Needs no writable folder and creates no
// files. A database that is missing, damaged, written by a newer dorajit, or writable by untrusted
// users is skipped until the process ends, and one warning gives the reason.
class OverlayDatabases {
 public:
  OverlayDatabases(std::span<const std::string> paths, const Trust& trust);

  // The winner in the first database that has one.
  std::optional<Winner> find_winner(std::string_view device, std::string_view problem);
  // The winners of a variant's problems on any device, database by database.
  std::vector<Winner> winners_of_variant(std::string_view variant);

 private:
  struct Overlay {
    explicit Overlay(std::string file) : path(std::move(file)) {}
    std::string path;
    std::atomic<bool> checked{false};  // this process has checked the entire file once
    std::atomic<bool> passed_over{false};
  };
  // Returns the result of `select` on the database, or a value-initialised result if the database
  // cannot be used.
  template <class Select>
  auto read(Overlay& overlay, Select select) const;
  static void pass_over(Overlay& overlay, std::string_view reason);

  const Trust trust_;
  std::deque<Overlay> overlays_;  // a deque: elements are never moved
};

}  // namespace dorajit::cache
