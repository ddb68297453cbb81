#include "apps/cli/terminal/table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "runtime/base/printable_text.h"

namespace dorajit::cli {

void Table::add_row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = printable_line(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  constexpr std::size_t kGap = 2;
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(columns_[i].heading.size());
    for (const auto& row : rows_) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string padding(widths[i] - cell.size(), ' ');
      if (i > 0) line.append(kGap, ' ');
      line += columns_[i].align == Align::kLeft ? cell + padding : padding + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](std::size_t i) -> const std::string& { return columns_[i].heading; });
  for (const auto& row : rows_) {
    add_line([&](std::size_t i) -> const std::string& { return row[i]; });
  }
  return text;
}

}  // namespace dorajit::cli
