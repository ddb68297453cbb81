#include "apps/cli/models/json_file.h"

#include <cstddef>
#include <filesystem>
#include <format>
#include <system_error>
#include <utility>

#include "runtime/base/json_fields.h"
#include "runtime/base/json_text.h"
#include "runtime/base/regular_file.h"

namespace dorajit::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxBytes = std::size_t{8} << 20;
constexpr std::int64_t kLargestSize = std::int64_t{1} << 24;

// The value as the file has it, shortened.
std::string shown(const Json& value) {
  if (value.is_structured()) return std::format("an {}", value.type_name());
  constexpr std::size_t kMaxShown = 60;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

}  // namespace

Result<JsonObject> JsonObject::read(const std::string& path, const std::string& name) {
  std::error_code ignored;
  const std::string file =
      fs::is_directory(path, ignored) ? (fs::path(path) / name).string() : path;
  const auto text = read_regular_file(file, kMaxBytes);
  if (!text) {
    return fail(StatusCode::kIoError, std::format("cannot read {}: {}", file, text.error()));
  }
  auto parsed = parse_json(*text);
  if (!parsed) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{} is not a JSON document: {}", file, parsed.error().message));
  }
  if (parsed->is_object()) return JsonObject(file, *std::move(parsed));
  return fail(StatusCode::kInvalidArgument,
              std::format("{} has a JSON {} instead of an object; name a model's or an "
                          "adapter's {}",
                          file, parsed->type_name(), name));
}

std::unexpected<Error> JsonObject::refuse(const std::string& field, const std::string& what) const {
  return fail(StatusCode::kInvalidArgument, std::format("{}: `{}` is {}; it must be {}", path_,
                                                        field, shown(object_[field]), what));
}

bool JsonObject::has(const std::string& field) const {
  const auto found = object_.find(field);
  return found != object_.end() && !found->is_null();
}

Result<std::optional<JsonObject>> JsonObject::object(const std::string& field) const {
  if (!has(field)) return std::nullopt;
  if (!object_[field].is_object()) return refuse(field, "an object");
  return JsonObject(path_, object_[field]);
}

bool JsonObject::is_text(const std::string& field) const {
  return json_member<std::string>(object_, field).has_value();
}

Result<std::optional<std::string>> JsonObject::text(const std::string& field) const {
  if (!has(field)) return std::nullopt;
  if (auto text = json_member<std::string>(object_, field)) return text;
  return refuse(field, "a text");
}

Result<std::optional<bool>> JsonObject::flag(const std::string& field) const {
  if (!has(field)) return std::nullopt;
  if (const auto flag = json_member<bool>(object_, field)) return flag;
  return refuse(field, "true or false");
}

Result<std::optional<std::vector<std::string>>> JsonObject::texts(const std::string& field) const {
  if (!has(field)) return std::nullopt;
  if (auto text = json_member<std::string>(object_, field)) return std::vector{*std::move(text)};
  std::vector<std::string> texts;
  if (!object_[field].is_array()) return refuse(field, "a text or a list of texts");
  for (const Json& one : object_[field]) {
    if (!one.is_string()) return refuse(field, "a text or a list of texts");
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

Result<std::optional<std::int64_t>> JsonObject::size(const std::string& field) const {
  if (!has(field)) return std::nullopt;
  const std::int64_t number = json_member<std::int64_t>(object_, field).value_or(0);
  if (number >= 1 && number <= kLargestSize) return number;
  return refuse(field, std::format("a whole number from 1 to {}", kLargestSize));
}

Result<std::int64_t> JsonObject::required_size(const std::string& field) const {
  DORAJIT_ASSIGN(const std::optional<std::int64_t> found, size(field));
  if (found) return *found;
  return fail(StatusCode::kInvalidArgument,
              std::format("{}: `{}` is missing, so its layers are not known; give their sizes with "
                          "--shape",
                          path_, field));
}

}  // namespace dorajit::cli
