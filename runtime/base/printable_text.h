// Text of unknown origin: made safe to show on a terminal, and cut into lines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace dorajit {

// Whether `text` is UTF-8 without control characters (including line breaks) and without characters
// that change the text direction.
bool is_printable_line(std::string_view text);

// Replaces non-printable characters with escapes: \u001b for a character, \x9b for a byte that is
// not UTF-8. In a JSON string, \u001b means the same character. Printable text is unchanged.
std::string printable_line(std::string_view text);

// The same for text of several lines: line breaks and tabs are kept.
std::string printable_text(std::string_view text);

// Removes the first line from `text` and returns it.
inline std::string_view cut_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace dorajit
