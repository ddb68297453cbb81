// Databases that are only read, and that nobody writes while they are.
#pragma once

#include <atomic>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cache/sqlite_connection.h"
#include "cache/tuning_records.h"

namespace dorajit::cache {

// Thread-safe. Holds no handle, so it survives fork(). Needs no writable folder, and leaves nothing
// beside the files. One that is missing, damaged or of a newer dorajit is passed over for the rest
// of the process, and one warning says why.
class OverlayDatabases {
 public:
  explicit OverlayDatabases(std::span<const std::string> paths);

  // Of the first that has one.
  std::optional<Winner> find_winner(std::string_view device, std::string_view problem);

 private:
  struct Overlay {
    explicit Overlay(std::string file) : path(std::move(file)) {}
    std::string path;
    std::atomic<bool> checked{false};  // this process has seen the file whole once
    std::atomic<bool> passed_over{false};
  };
  static std::optional<Winner> find_in(Overlay& overlay, std::string_view device,
                                       std::string_view problem);
  static void pass_over(Overlay& overlay, std::string_view reason);

  std::deque<Overlay> overlays_;  // elements stay where they are
};

}  // namespace dorajit::cache
