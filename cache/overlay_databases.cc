#include "cache/overlay_databases.h"

#include <chrono>
#include <format>
#include <utility>

#include "cache/fork_guard.h"
#include "cache/inspection.h"
#include "cache/tuning_rows.h"
#include "runtime/base/log.h"

namespace dorajit::cache {

OverlayDatabases::OverlayDatabases(std::span<const std::string> paths) {
  for (const std::string& path : paths) overlays_.emplace_back(path);
}

std::optional<Winner> OverlayDatabases::find_winner(std::string_view device,
                                                    std::string_view problem) {
  if (overlays_.empty() || sqlite_is_lost_to_fork()) return std::nullopt;
  for (Overlay& overlay : overlays_) {
    if (auto winner = find_in(overlay, device, problem)) return winner;
  }
  return std::nullopt;
}

std::optional<Winner> OverlayDatabases::find_in(Overlay& overlay, std::string_view device,
                                                std::string_view problem) {
  if (overlay.passed_over.load()) return std::nullopt;
  const SqliteUse use;
  const auto depth = overlay.checked.load() ? CheckDepth::kMarks : CheckDepth::kStructure;
  Inspection found =
      inspect(overlay.path, Connection::Mode::kImmutable, depth, std::chrono::milliseconds(0));
  if (found.state != FileState::kUsable) {
    pass_over(overlay, found.state == FileState::kAbsent ? "there is no such file" : found.reason);
    return std::nullopt;
  }
  overlay.checked.store(true);
  auto winner = select_winner(*found.connection, device, problem);
  if (!winner) {
    pass_over(overlay, winner.error().message);
    return std::nullopt;
  }
  return *std::move(winner);
}

void OverlayDatabases::pass_over(Overlay& overlay, std::string_view reason) {
  if (overlay.passed_over.exchange(true)) return;
  log_once(LogLevel::kWarning, "overlay " + overlay.path,
           std::format("the tuning results in {} are not used: {}; make the file anew with "
                       "`dorajit import`, or take it from the list",
                       overlay.path, reason));
}

}  // namespace dorajit::cache
