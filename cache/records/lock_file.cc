#include "cache/records/lock_file.h"

#include <format>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "cache/files/text_lines.h"
#include "kernel_templates/config_text.h"
#include "runtime/base/hash.h"
#include "runtime/base/json_fields.h"
#include "runtime/base/json_text.h"
#include "runtime/base/printable_text.h"
#include "runtime/base/regular_file.h"

namespace dorajit::cache {
namespace {

using Json = JsonFields::Json;

constexpr const char* kFormatName = "dorajit-lock";
constexpr std::int64_t kFormatVersion = 1;
constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;

struct TextMember {
  const char* name;
  std::string LockEntry::* member;
  bool may_be_null;
};
constexpr TextMember kTexts[] = {{"device", &LockEntry::device, false},
                                 {"problem", &LockEntry::problem, false},
                                 {"compiler", &LockEntry::compiler, true},
                                 {"artifact", &LockEntry::artifact, true},
                                 {"code", &LockEntry::code, true}};
constexpr std::size_t kFieldCount = std::size(kTexts) + 1;

std::string to_line(const LockEntry& entry) {
  Json line;
  for (const auto& [name, member, may_be_null] : kTexts) {
    const std::string& text = entry.*member;
    line[name] = may_be_null && text.empty() ? Json() : Json(text);
    if (member == &LockEntry::problem) line["config"] = kernels::to_text(entry.config);
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<LockEntry> read_line(std::string_view text) {
  const auto line = parse_json(text);
  if (!line || !line->is_object() || line->size() != kFieldCount) return std::nullopt;
  JsonFields fields(*line);
  LockEntry entry;
  for (const auto& [name, member, may_be_null] : kTexts) {
    if (may_be_null && fields.is_null(name)) continue;
    entry.*member = fields.text(name);
    if (!is_printable_line(entry.*member)) return std::nullopt;  // messages show these texts
  }
  const auto config = kernels::parse_config(fields.text("config"));
  if (!config || !fields.fault().empty()) return std::nullopt;
  entry.config = *config;
  return entry;
}

std::unexpected<Error> bad_text(std::string_view what) {
  return fail(StatusCode::kIoError, std::string(what));
}

Status check_header(const Json& header, std::string_view rest) {
  const bool is_header = header.is_object() && header.value("format", Json()) == kFormatName &&
                         header.value("version", Json()).is_number_integer() &&
                         header.value("problems", Json()).is_number_unsigned() &&
                         header.size() == 4;
  if (!is_header) return bad_text("its first line is not that of a lock file");
  if (const auto version = header["version"].get<std::int64_t>(); version != kFormatVersion) {
    return bad_text(std::format("it has version {} of {}, and this dorajit supports {}", version,
                                kFormatName, kFormatVersion));
  }
  if (header.value("digest", Json()) != hash_hex(rest)) {
    return bad_text("it is incomplete or was changed: its digest does not match its lines");
  }
  return {};
}

}  // namespace

std::string to_lock_text(std::span<const LockEntry> entries) {
  std::map<std::pair<std::string_view, std::string_view>, const LockEntry*> sorted;
  for (const LockEntry& entry : entries) {
    sorted.try_emplace({entry.device, entry.problem}, &entry);
  }
  std::string lines;
  for (const auto& [key, entry] : sorted) lines += to_line(*entry);
  const Json header = {{"format", kFormatName},
                       {"version", kFormatVersion},
                       {"problems", sorted.size()},
                       {"digest", hash_hex(lines)}};
  return header.dump() + "\n" + lines;
}

Result<std::vector<LockEntry>> parse_lock_text(std::string_view text) {
  const std::string_view header = cut_line(text);
  const Json fields = parse_json(header).value_or(Json());
  DORAJIT_TRY(check_header(fields, text));
  std::vector<LockEntry> entries;
  for (int number = 2; !text.empty(); ++number) {
    auto entry = read_line(cut_line(text));
    if (!entry) return bad_text(std::format("its line {} is not a valid entry", number));
    entries.push_back(*std::move(entry));
  }
  if (fields["problems"] != entries.size())
    return bad_text("its number of problems does not match its header");
  return entries;
}

Result<std::vector<LockEntry>> read_lock_file(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    return fail(StatusCode::kIoError,
                std::format("cannot use the lock file {}: {}; `dorajit freeze --out` writes one",
                            path, why));
  };
  const auto text = read_regular_file(path, kMaxFileBytes);
  if (!text) return refuse(text.error());
  auto entries = parse_lock_text(*text);
  if (!entries) return refuse(entries.error().message);
  return *std::move(entries);
}

std::vector<LockDifference> differences(const LockEntry& first, const LockEntry& second) {
  std::vector<LockDifference> found;
  const auto compare = [&](std::string_view field, std::string a, std::string b) {
    if (a != b) found.push_back({.field = field, .first = std::move(a), .second = std::move(b)});
  };
  compare("config", kernels::to_text(first.config), kernels::to_text(second.config));
  compare("compiler", first.compiler, second.compiler);
  compare("artifact", first.artifact, second.artifact);
  compare("code", first.code, second.code);
  return found;
}

}  // namespace dorajit::cache
