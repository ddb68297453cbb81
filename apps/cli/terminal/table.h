// Quantities as people read them, with three significant digits, and tables with aligned columns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dorajit::cli {

std::string duration_text(double nanoseconds);    // "12.3 us"
std::string bytes_text(std::int64_t bytes);       // "32 MiB"
std::string ratio_text(double ratio);             // "1.23x"
std::string percent_text(double share);           // "87%"
std::string bandwidth_text(double bytes_per_ns);  // "4310 GB/s", without the unit
std::string age_text(std::int64_t seconds);       // "3 h"
// "1 kernel", "2 kernels"
std::string count_text(std::int64_t count, const std::string& noun);
// The texts that `text_of` gives for the elements, in one line.
template <class Range, class TextOf = std::identity>
std::string joined(const Range& range, std::string_view separator = ", ", TextOf text_of = {}) {
  std::string text;
  for (const auto& one : range) {
    text.append(text.empty() ? "" : separator).append(std::invoke(text_of, one));
  }
  return text;
}

enum class Align { kLeft, kRight };

struct Column {
  std::string heading;
  Align align = Align::kLeft;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Missing cells are empty; there may be no more cells than columns.
  void add_row(std::vector<std::string> cells);

  [[nodiscard]] bool empty() const { return rows_.empty(); }

  // The heading and every row, without trailing spaces: one line each, or as many as it takes to
  // stay within 100 characters.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace dorajit::cli
