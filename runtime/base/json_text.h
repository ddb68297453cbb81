// The only parser of JSON text. Lines of messages, files of users and files of the cache go through
// it, and none of them is trusted.
#pragma once

#include <cstddef>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/json_fields.h"

namespace dorajit {

// Copying and writing a document recurse, and inserting a member into an object compares it with
// all others: 4096 take 0.1 s, and 200,000 hours.
inline constexpr std::size_t kMaxJsonDepth = 64;
inline constexpr std::size_t kMaxJsonMembers = 4096;  // of one list or object
inline constexpr std::size_t kMaxJsonValues = std::size_t{1} << 16;

// kInvalidArgument with the line and the column of the first fault: "line 3, column 7: ...". The
// limits are checked before anything is built. A byte order mark is a fault.
Result<JsonFields::Json> parse_json(std::string_view text);

}  // namespace dorajit
