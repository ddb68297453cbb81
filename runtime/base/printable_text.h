// Text of unknown origin, made safe to show on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace dorajit {

// Whether `text` is UTF-8 without control characters (of which line breaks are some) and without
// characters that change the direction of writing.
bool is_printable_line(std::string_view text);

// The text with what is not printable as an escape: \u001b for a character, \x9b for a byte that is
// no UTF-8. Inside of a JSON string \u001b means the same character. Printable text stays as it is.
std::string printable_line(std::string_view text);

// The same for text of several lines: line breaks and tabs stay.
std::string printable_text(std::string_view text);

}  // namespace dorajit
