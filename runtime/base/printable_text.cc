#include "runtime/base/printable_text.h"

#include <cstddef>
#include <cstdint>
#include <format>

namespace dorajit {
namespace {

struct Character {
  std::size_t bytes = 1;
  std::uint32_t code = 0;
  bool is_valid = false;  // otherwise it is one byte that is not UTF-8
};

// `text` must not be empty.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const Character bad{.bytes = 1, .code = lead, .is_valid = false};
  if (lead < 0x80) return {.bytes = 1, .code = lead, .is_valid = true};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return bad;
  std::uint32_t code = lead & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return bad;
    code = code << 6U | (byte(i) & 0x3FU);
  }
  constexpr std::uint32_t kMinCode[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kMinCode[bytes] || code > 0x10FFFF || is_surrogate) return bad;
  return {.bytes = bytes, .code = code, .is_valid = true};
}

bool is_printable(std::uint32_t code) {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return false;  // C0, DEL, C1
  if (code == 0x061C || code == 0x200E || code == 0x200F) return false;
  if (code == 0x2028 || code == 0x2029) return false;  // line and paragraph separators
  return !(code >= 0x202A && code <= 0x202E) && !(code >= 0x2066 && code <= 0x2069);
}

std::string escape(std::string_view text, std::string_view kept) {
  std::string escaped;
  while (!text.empty()) {
    const Character one = first_character(text);
    if (!one.is_valid) {
      escaped += std::format("\\x{:02x}", one.code);
    } else if (is_printable(one.code) || kept.contains(text.front())) {
      escaped.append(text.substr(0, one.bytes));
    } else {
      escaped += std::format("\\u{:04x}", one.code);
    }
    text.remove_prefix(one.bytes);
  }
  return escaped;
}

}  // namespace

bool is_printable_line(std::string_view text) { return printable_line(text) == text; }

std::string printable_line(std::string_view text) { return escape(text, {}); }

std::string printable_text(std::string_view text) { return escape(text, "\n\t"); }

}  // namespace dorajit
