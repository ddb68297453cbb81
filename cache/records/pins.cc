#include "cache/records/pins.h"

#include <algorithm>
#include <chrono>
#include <format>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "cache/files/shared_file.h"
#include "cache/records/tuning_records.h"
#include "kernel_templates/config.h"
#include "runtime/base/files.h"
#include "runtime/base/hash.h"
#include "runtime/base/json_text.h"
#include "runtime/base/log.h"
#include "runtime/base/printable_text.h"

namespace dorajit::cache {
namespace {

using Json = JsonFields::Json;

constexpr const char* kFormatName = "dorajit-lock";
constexpr std::int64_t kFormatVersion = 1;
constexpr std::size_t kMaxPinsBytes = std::size_t{64} << 20;

// In a cache folder.
constexpr const char* kName = "pins.jsonl";
constexpr off_t kMaxBytes = off_t{1} << 24;
constexpr std::chrono::seconds kLockWait{10};

struct TextMember {
  const char* name;
  std::string Pin::* member;
  bool may_be_null;
};
constexpr TextMember kTexts[] = {{"device", &Pin::device, false},
                                 {"problem", &Pin::problem, false},
                                 {"compiler", &Pin::compiler, true},
                                 {"artifact", &Pin::artifact, true},
                                 {"code", &Pin::code, true}};
constexpr std::size_t kFieldCount = std::size(kTexts) + 1;

std::string to_line(const Pin& entry) {
  Json line;
  for (const auto& [name, member, may_be_null] : kTexts) {
    const std::string& text = entry.*member;
    line[name] = may_be_null && text.empty() ? Json() : Json(text);
    if (member == &Pin::problem) line["config"] = kernels::to_text(entry.config);
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<Pin> read_line(std::string_view text) {
  const auto line = parse_json(text);
  if (!line || !line->is_object() || line->size() != kFieldCount) return std::nullopt;
  JsonFields fields(*line);
  Pin entry;
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

std::string to_pin_text(std::span<const Pin> entries) {
  std::map<std::pair<std::string_view, std::string_view>, const Pin*> sorted;
  for (const Pin& entry : entries) {
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

Result<std::vector<Pin>> parse_pin_text(std::string_view text) {
  const std::string_view header = cut_line(text);
  const Json fields = parse_json(header).value_or(Json());
  DORAJIT_TRY(check_header(fields, text));
  std::vector<Pin> entries;
  for (int number = 2; !text.empty(); ++number) {
    auto entry = read_line(cut_line(text));
    if (!entry) return bad_text(std::format("its line {} is not a valid entry", number));
    entries.push_back(*std::move(entry));
  }
  if (fields["problems"] != entries.size())
    return bad_text("its number of problems does not match its header");
  return entries;
}

Result<std::vector<Pin>> read_pin_file(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    return fail(StatusCode::kIoError,
                std::format("cannot use the lock file {}: {}; `dorajit freeze --out` writes one",
                            path, why));
  };
  const auto text = read_regular_file(path, kMaxPinsBytes);
  if (!text) return refuse(text.error());
  auto entries = parse_pin_text(*text);
  if (!entries) return refuse(entries.error().message);
  return *std::move(entries);
}

std::vector<PinDifference> differences(const Pin& first, const Pin& second) {
  std::vector<PinDifference> found;
  const auto compare = [&](std::string_view field, std::string a, std::string b) {
    if (a != b) found.push_back({.field = field, .first = std::move(a), .second = std::move(b)});
  };
  compare("config", kernels::to_text(first.config), kernels::to_text(second.config));
  compare("compiler", first.compiler, second.compiler);
  compare("artifact", first.artifact, second.artifact);
  compare("code", first.code, second.code);
  return found;
}

Result<std::vector<Pin>> Pins::read() const {
  if (all_) return all_->pins;
  if (cache_dir_.empty()) return std::vector<Pin>();
  DORAJIT_ASSIGN(const auto folder, TrustedDirectory::open(cache_dir_, trust_));
  if (!folder) return std::vector<Pin>();
  DORAJIT_ASSIGN(const auto text, folder->read_file(kName, kMaxBytes));
  if (!text) return std::vector<Pin>();
  auto entries = parse_pin_text(*text);
  if (entries) return entries;
  return fail(StatusCode::kIoError,
              std::format("cannot use the pinned configs in {}/{}: {}; delete the file, and pin "
                          "again with `dorajit pin`",
                          folder->path(), kName, entries.error().message));
}

std::optional<Pin> Pins::find(std::string_view device, std::string_view problem) const {
  const auto entries = read();
  if (!entries) {
    log_once(LogLevel::kWarning, cache_dir_ + "/" + kName, entries.error().message);
    return std::nullopt;
  }
  // Of two for the model, that for the device itself.
  const Pin* found = nullptr;
  for (const Pin& entry : *entries) {
    if (entry.problem != problem || !is_same_model(entry.device, device)) continue;
    if (found == nullptr || (entry.device == device && found->device != device)) found = &entry;
  }
  return found == nullptr ? std::nullopt : std::optional(*found);
}

Status Pins::change(const std::function<void(std::vector<Pin>&)>& edit) const {
  if (cache_dir_.empty()) {
    return fail(StatusCode::kIoError,
                "a config can be pinned only in a cache folder that can be written: set "
                "DORAJIT_CACHE_DIR to one");
  }
  DORAJIT_ASSIGN(const TrustedDirectory folder, TrustedDirectory::make(cache_dir_, trust_));
  const std::string path = folder.held_path() + "/" + kName;
  DORAJIT_ASSIGN(const auto lock,
                 FileLock::acquire(path + ".lock", FileLock::Mode::kExclusive, kLockWait,
                                   FilePlace::kCacheFolder, folder.file_mode()));
  if (!lock) {
    return fail(StatusCode::kIoError,
                std::format("{}/{} is locked by another process; try again when it is done",
                            cache_dir_, kName));
  }
  DORAJIT_ASSIGN(std::vector<Pin> entries, read());
  edit(entries);
  DORAJIT_ASSIGN(AtomicFile file,
                 AtomicFile::create(path, FilePlace::kCacheFolder, folder.file_mode()));
  DORAJIT_TRY(file.write(to_pin_text(entries)));
  return file.publish_replacing();
}

Status Pins::add(const Pin& pin) const {
  return change([&](std::vector<Pin>& entries) {
    entries.insert(entries.begin(), pin);  // of two for one problem the first is kept
  });
}

Result<bool> Pins::remove(std::string_view device, std::string_view problem) const {
  bool is_removed = false;
  DORAJIT_TRY(change([&](std::vector<Pin>& entries) {
    is_removed = std::erase_if(entries, [&](const Pin& entry) {
                   return entry.problem == problem && is_same_model(entry.device, device);
                 }) > 0;
  }));
  return is_removed;
}

}  // namespace dorajit::cache
