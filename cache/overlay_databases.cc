#include "cache/overlay_databases.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <format>
#include <iterator>
#include <system_error>
#include <type_traits>
#include <utility>

#include "cache/inspection.h"
#include "cache/tuning_rows.h"
#include "runtime/base/log.h"
#include "runtime/base/work_in_progress.h"

namespace dorajit::cache {

std::vector<std::string> databases_in(const std::string& folder) {
  std::vector<std::string> databases;
  if (folder.empty()) return databases;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".db") databases.push_back(entry->path().string());
  }
  if (error) {
    log_once(LogLevel::kWarning, "overlays in " + folder,
             std::format("no shipped tuning results are used: {} cannot be read: {}; set "
                         "DORAJIT_DATABASES to their folder, or to none",
                         folder, error.message()));
  }
  std::ranges::sort(databases);
  return databases;
}

Result<std::int64_t> count_overlay_winners(const std::string& path) {
  const WorkInProgress use(Work::kSqlite);
  Inspection found =
      inspect(path, Connection::Mode::kImmutable, CheckDepth::kWhole, std::chrono::milliseconds(0));
  if (found.state == FileState::kAbsent) return fail(StatusCode::kIoError, "there is no such file");
  if (found.state != FileState::kUsable) return fail(StatusCode::kIoError, found.reason);
  const auto winners = select_winners(*found.connection);
  if (!winners) return fail(StatusCode::kIoError, winners.error().message);
  return static_cast<std::int64_t>(winners->size());
}

OverlayDatabases::OverlayDatabases(std::span<const std::string> paths) {
  for (const std::string& path : paths) overlays_.emplace_back(path);
}

template <class Select>
auto OverlayDatabases::read(Overlay& overlay, Select select) {
  using Rows = typename std::invoke_result_t<Select, Connection&>::value_type;
  if (overlay.passed_over.load()) return Rows{};
  const WorkInProgress use(Work::kSqlite);
  const auto depth = overlay.checked.load() ? CheckDepth::kMarks : CheckDepth::kStructure;
  Inspection found =
      inspect(overlay.path, Connection::Mode::kImmutable, depth, std::chrono::milliseconds(0));
  if (found.state != FileState::kUsable) {
    pass_over(overlay, found.state == FileState::kAbsent ? "there is no such file" : found.reason);
    return Rows{};
  }
  overlay.checked.store(true);
  auto rows = select(*found.connection);
  if (!rows) {
    pass_over(overlay, rows.error().message);
    return Rows{};
  }
  return *std::move(rows);
}

std::optional<Winner> OverlayDatabases::find_winner(std::string_view device,
                                                    std::string_view problem) {
  if (overlays_.empty() || losses_to_fork(Work::kSqlite) > 0) return std::nullopt;
  for (Overlay& overlay : overlays_) {
    auto winner = read(overlay, [&](Connection& connection) {
      return select_winner(connection, device, problem);
    });
    if (winner) return winner;
  }
  return std::nullopt;
}

std::vector<Winner> OverlayDatabases::winners_of_variant(std::string_view variant) {
  std::vector<Winner> winners;
  if (overlays_.empty() || losses_to_fork(Work::kSqlite) > 0) return winners;
  for (Overlay& overlay : overlays_) {
    std::ranges::move(read(overlay,
                           [&](Connection& connection) {
                             return select_winners_of_variant(connection, variant);
                           }),
                      std::back_inserter(winners));
  }
  return winners;
}

void OverlayDatabases::pass_over(Overlay& overlay, std::string_view reason) {
  if (overlay.passed_over.exchange(true)) return;
  log_once(LogLevel::kWarning, "overlay " + overlay.path,
           std::format("the tuning results in {} are not used: {}; make the file anew with "
                       "`dorajit import`, or take it from the list",
                       overlay.path, reason));
}

}  // namespace dorajit::cache
