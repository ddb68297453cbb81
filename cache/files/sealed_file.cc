#include "cache/files/sealed_file.h"

#include <cstdint>
#include <format>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/hash.h"
#include "runtime/base/json_fields.h"
#include "runtime/base/json_text.h"

namespace dorajit::cache {
namespace {

using nlohmann::json;

constexpr std::int64_t kFormat = 1;
constexpr const char* kHeaderHash = "header_xxh3_128";

struct ResourceField {
  const char* name;
  int ResourceUsage::* member;
};
constexpr ResourceField kResourceFields[] = {
    {"registers", &ResourceUsage::registers},
    {"shared_bytes", &ResourceUsage::shared_bytes},
    {"stack_bytes", &ResourceUsage::stack_bytes},
    {"spill_store_bytes", &ResourceUsage::spill_store_bytes},
    {"spill_load_bytes", &ResourceUsage::spill_load_bytes},
};

std::string magic(SealKind kind) {
  return kind == SealKind::kArtifact ? "dorajit-artifact" : "dorajit-note";
}

std::unexpected<UnsealFailure> damaged(std::string reason) {
  return std::unexpected(UnsealFailure{std::move(reason), false});
}

}  // namespace

std::string seal(SealKind kind, std::string_view key, const Artifact& content) {
  json header = {{"magic", magic(kind)},
                 {"format", kFormat},
                 {"key", key},
                 {"size", content.code.size()},
                 {"xxh3_128", hash_hex(content.code)}};
  if (kind == SealKind::kArtifact) {
    json& resources = header["resources"] = json::object();
    for (const auto& field : kResourceFields) {
      resources[field.name] = content.resources.*field.member;
    }
    if (content.entry != Artifact::kDefaultEntry) header["entry"] = content.entry;
  }
  header[kHeaderHash] = hash_hex(header.dump());
  return header.dump() + '\n' + content.code;
}

std::expected<Artifact, UnsealFailure> unseal(SealKind kind, std::string_view key,
                                              std::string_view file) {
  const std::size_t end = file.find('\n');
  if (end == std::string_view::npos) return damaged("its header is cut off");
  auto parsed = parse_json(file.substr(0, end));
  if (!parsed || !parsed->is_object()) return damaged("its header is not JSON");
  JsonFields::Json& header = *parsed;
  if (json_member<std::string>(header, "magic") != magic(kind))
    return damaged("its header has another magic");
  const auto format = json_member<std::int64_t>(header, "format");
  if (format > kFormat) {
    return std::unexpected(UnsealFailure{std::format("it has format {}", *format), true});
  }

  const auto header_hash = json_member<std::string>(header, kHeaderHash);
  header.erase(kHeaderHash);
  // Invalid UTF-8 in a damaged header must not throw; it is replaced, which changes the hash.
  if (header_hash != hash_hex(header.dump(-1, ' ', false, json::error_handler_t::replace))) {
    return damaged("its header was altered");
  }
  if (json_member<std::string>(header, "key") != key) return damaged("it belongs to another key");
  const std::string_view payload = file.substr(end + 1);
  if (json_member<std::int64_t>(header, "size") != static_cast<std::int64_t>(payload.size())) {
    return damaged("its size is wrong");
  }
  if (json_member<std::string>(header, "xxh3_128") != hash_hex(payload))
    return damaged("its content was altered");

  Artifact content{std::string(payload), {}};
  if (auto entry = json_member<std::string>(header, "entry")) content.entry = *std::move(entry);
  const auto resources = header.find("resources");
  if (resources != header.end()) {
    for (const auto& field : kResourceFields) {
      content.resources.*field.member =
          static_cast<int>(json_member<std::int64_t>(*resources, field.name).value_or(0));
    }
  }
  return content;
}

}  // namespace dorajit::cache
