#include "runtime/base/json_text.h"

#include <algorithm>
#include <array>
#include <format>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/printable_text.h"

namespace dorajit {
namespace {

using Json = JsonFields::Json;

std::unexpected<Error> fault_at(std::string_view text, std::size_t at, std::string_view what) {
  const std::string_view before = text.substr(0, at);
  const std::size_t line_begin = before.rfind('\n') + 1;  // 0 in the first line
  return fail(StatusCode::kInvalidArgument,
              std::format("line {}, column {}: {}", std::ranges::count(before, '\n') + 1,
                          before.size() - line_begin + 1, what));
}

// Counts brackets and commas outside of strings. Up to the first fault of the syntax, where the
// parser stops, these give the document's levels and values.
Status check_limits(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) {
    return fault_at(text, 0, "a byte order mark; store the text as UTF-8 without one");
  }
  std::array<std::size_t, kMaxJsonDepth + 1> commas{};  // by level
  std::size_t depth = 0;
  std::size_t all = 0;
  bool is_in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (is_in_string) {
      if (c == '\\') ++at;
      is_in_string = c != '"';
    } else if (c == '"') {
      is_in_string = true;
    } else if (c == '\0') {  // the parser takes it for the end of the text
      return fault_at(text, at, "a zero byte");
    } else if (c == '[' || c == '{') {
      if (depth == kMaxJsonDepth) {
        return fault_at(text, at, std::format("more than {} levels of brackets", kMaxJsonDepth));
      }
      commas[++depth] = 0;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    } else if (c == ',') {
      if (++commas[depth] >= kMaxJsonMembers) {
        return fault_at(text, at,
                        std::format("a list or an object of more than {} values", kMaxJsonMembers));
      }
    }
    all += !is_in_string && (c == ',' || c == '[' || c == '{') ? 1 : 0;
    if (all > kMaxJsonValues) {
      return fault_at(text, at, std::format("more than {} values", kMaxJsonValues));
    }
  }
  return {};
}

// Of "[json.exception.parse_error.101] parse error at line 1, column 3: syntax error while parsing
// value - invalid literal; last read: ..." the words after the colon, without the text read last,
// which may be long.
std::string reason_in(std::string_view message) {
  message.remove_prefix(std::min(message.find(": "), message.size() - 2) + 2);
  const std::size_t end = std::min(message.find("; last read: "), message.size());
  const std::size_t expected = std::min(message.rfind("; expected "), message.size());
  std::string reason(message.substr(0, end));
  if (expected > end) reason.append(message.substr(expected));
  return printable_line(reason);
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  DORAJIT_TRY(check_limits(text));
  std::vector<std::set<std::string>> keys;  // of the objects around the place
  std::optional<std::string> twice;
  const auto note_keys = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    return true;
  };
  try {
    Json parsed = Json::parse(text, note_keys);
    if (!twice) return parsed;
    return fail(StatusCode::kInvalidArgument,
                std::format("an object has the key \"{}\" twice", printable_line(*twice)));
  } catch (const Json::parse_error& error) {
    return fault_at(text, std::clamp(error.byte, std::size_t{1}, text.size() + 1) - 1,
                    reason_in(error.what()));
  } catch (const Json::exception& error) {
    return fail(StatusCode::kInvalidArgument, printable_line(error.what()));
  }
}

}  // namespace dorajit
