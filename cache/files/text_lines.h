// Splits text into lines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace dorajit::cache {

// Removes the first line from `text` and returns it.
inline std::string_view cut_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace dorajit::cache
