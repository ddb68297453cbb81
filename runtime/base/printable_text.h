// Text of unknown origin, made safe to show on a terminal.
#pragma once

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

}  // namespace dorajit
