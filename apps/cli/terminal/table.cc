#include "apps/cli/terminal/table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <format>
#include <utility>

#include "runtime/base/printable_text.h"

namespace dorajit::cli {
namespace {

std::string three_digits(double value) {
  const double magnitude = std::abs(value);
  if (magnitude < 9.995) return std::format("{:.2f}", value);
  if (magnitude < 99.95) return std::format("{:.1f}", value);
  return std::format("{:.0f}", value);
}

template <std::size_t kUnits>
std::string scaled(double value, double step, const std::array<std::string_view, kUnits>& units) {
  std::size_t unit = 0;
  while (unit + 1 < kUnits && std::abs(value) >= step - 0.5) {
    value /= step;
    ++unit;
  }
  return std::format("{} {}", three_digits(value), units[unit]);
}

}  // namespace

std::string duration_text(double nanoseconds) {
  return scaled<4>(nanoseconds, 1000, {"ns", "us", "ms", "s"});
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 1024) return std::format("{} B", bytes);
  return scaled<5>(static_cast<double>(bytes), 1024, {"B", "KiB", "MiB", "GiB", "TiB"});
}

std::string ratio_text(double ratio) {
  return std::isfinite(ratio) && ratio > 0 ? std::format("{:.2f}x", ratio) : "-";
}

std::string percent_text(double share) {
  return std::isfinite(share) && share > 0 ? std::format("{:.0f}%", 100 * share) : "-";
}

std::string bandwidth_text(double bytes_per_ns) { return three_digits(bytes_per_ns); }

std::string age_text(std::int64_t seconds) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 60 * kMinute;
  constexpr std::int64_t kDay = 24 * kHour;
  if (seconds < 0) seconds = 0;
  if (seconds < 2 * kMinute) return std::format("{} s", seconds);
  if (seconds < 2 * kHour) return std::format("{} min", seconds / kMinute);
  if (seconds < 2 * kDay) return std::format("{} h", seconds / kHour);
  return std::format("{} d", seconds / kDay);
}

std::string count_text(std::int64_t count, const std::string& noun) {
  return std::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

void Table::add_row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = printable_line(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  constexpr std::size_t kGap = 2;
  constexpr std::size_t kIndent = 4;  // of a row's further lines
  constexpr std::size_t kWidth = 100;
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(columns_[i].heading.size());
    for (const auto& row : rows_) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  const auto add_line = [&](const std::string& line) {
    if (const std::size_t last = line.find_last_not_of(' '); last != std::string::npos) {
      text += line.substr(0, last + 1) + "\n";
    }
  };
  const auto add_row = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string padding(widths[i] - cell.size(), ' ');
      const std::size_t gap = i > 0 ? kGap : 0;
      if (i > 0 && line.size() + gap + widths[i] > kWidth) {
        add_line(line);
        line.assign(kIndent, ' ');
      } else {
        line.append(gap, ' ');
      }
      line += columns_[i].align == Align::kLeft ? cell + padding : padding + cell;
    }
    add_line(line);
  };
  add_row([&](std::size_t i) -> const std::string& { return columns_[i].heading; });
  for (const auto& row : rows_) {
    add_row([&](std::size_t i) -> const std::string& { return row[i]; });
  }
  return text;
}

}  // namespace dorajit::cli
