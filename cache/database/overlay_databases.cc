#include "cache/database/overlay_databases.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <format>
#include <iterator>
#include <system_error>
#include <type_traits>
#include <utility>

#include "cache/database/database.h"
#include "cache/database/tuning_rows.h"
#include "cache/files/directories.h"
#include "runtime/base/fork_guard.h"
#include "runtime/base/log.h"

namespace dorajit::cache {

namespace {

Result<Session> open_overlay(const std::string& path, const Trust& trust, CheckDepth depth) {
  ForkGuard use(Work::kSqlite);
  DORAJIT_ASSIGN(auto found, TrustedDirectory::open(parent_directory(path), trust));
  if (!found) return fail(StatusCode::kIoError, "there is no such file");
  const std::string name = std::filesystem::path(path).filename();
  DORAJIT_TRY(found->check_file(name));
  HeldFolder folder = hold(*std::move(found));
  auto connection = inspect(folder->held_path() + "/" + name, Connection::Mode::kImmutable, depth,
                            std::chrono::milliseconds(0), trust.place);
  if (!connection) return fail(StatusCode::kIoError, std::move(connection).error().reason);
  return Session{.use = std::move(use),
                 .folder = std::move(folder),
                 .lock = {},
                 .connection = *std::move(connection),
                 .read_only = true};
}

}  // namespace

std::vector<std::string> databases_in(const std::string& folder, const Trust& trust) {
  std::vector<std::string> databases;
  if (folder.empty()) return databases;
  if (const auto found = TrustedDirectory::open(folder, trust); !found) {
    log_once(LogLevel::kWarning, "overlays in " + folder,
             "no shipped tuning results are used: " + found.error().message);
    return databases;
  }
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

Result<std::int64_t> count_overlay_winners(const std::string& path, const Trust& trust) {
  DORAJIT_ASSIGN(auto found, open_overlay(path, trust, CheckDepth::kWhole));
  const auto winners = select_winners(found.connection);
  if (!winners) return fail(StatusCode::kIoError, winners.error().message);
  return static_cast<std::int64_t>(winners->size());
}

OverlayDatabases::OverlayDatabases(std::span<const std::string> paths, const Trust& trust)
    : trust_(trust) {
  for (const std::string& path : paths) overlays_.emplace_back(path);
}

template <class Select>
auto OverlayDatabases::read(Overlay& overlay, Select select) const {
  using Rows = typename std::invoke_result_t<Select, Connection&>::value_type;
  if (overlay.passed_over.load()) return Rows{};
  const auto depth = overlay.checked.load() ? CheckDepth::kMarks : CheckDepth::kStructure;
  auto found = open_overlay(overlay.path, trust_, depth);
  if (!found) {
    pass_over(overlay, found.error().message);
    return Rows{};
  }
  overlay.checked.store(true);
  auto rows = select(found->connection);
  if (!rows) pass_over(overlay, rows.error().message);
  return rows ? *std::move(rows) : Rows{};
}

std::optional<Winner> OverlayDatabases::find_winner(std::string_view device,
                                                    std::string_view problem) {
  if (overlays_.empty() || fork_generation(Work::kSqlite) > 0) return std::nullopt;
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
  if (overlays_.empty() || fork_generation(Work::kSqlite) > 0) return winners;
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
           std::format("the tuning results in {} are not used: {}; write the file again with "
                       "`dorajit export --out FILE.db`, or remove it from the list",
                       overlay.path, reason));
}

}  // namespace dorajit::cache
