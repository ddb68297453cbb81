#include "own_kernels/json_fields.h"

#include <algorithm>
#include <format>
#include <utility>

namespace dorajit::own_kernels {
namespace {

using Json = nlohmann::ordered_json;

// Of an entry of "launches", or of the description if it has one launch.
constexpr std::string_view kLaunchFields[] = {"entry",         "grid",    "block",
                                              "shared_memory", "cluster", "cooperative"};

Result<std::array<std::string, 3>> expressions_of(const Json& json, std::string_view field) {
  std::array<std::string, 3> expressions = {"1", "1", "1"};
  const auto found = json.find(field);
  if (found == json.end()) return refuse_field(field, "is missing");
  if (!found->is_array()) {
    DORAJIT_ASSIGN(expressions[0], expression_of(*found, field));
    return expressions;
  }
  if (found->empty() || found->size() > 3) return refuse_field(field, "has not 1 to 3 expressions");
  for (std::size_t i = 0; i < found->size(); ++i) {
    DORAJIT_ASSIGN(expressions[i], expression_of((*found)[i], field));
  }
  return expressions;
}

Result<Launch> launch_of(const Json& json) {
  Launch launch{.entry = {}, .grid = {}, .block = {}, .shared_memory = "0"};
  DORAJIT_ASSIGN(launch.entry, required_text(json, "entry"));
  DORAJIT_ASSIGN(launch.grid, expressions_of(json, "grid"));
  DORAJIT_ASSIGN(launch.block, expressions_of(json, "block"));
  if (const auto shared = json.find("shared_memory"); shared != json.end()) {
    DORAJIT_ASSIGN(launch.shared_memory, expression_of(*shared, "shared_memory"));
  }
  if (json.contains("cluster")) {
    DORAJIT_ASSIGN(launch.cluster, expressions_of(json, "cluster"));
  }
  if (const auto cooperative = json.find("cooperative"); cooperative != json.end()) {
    if (!cooperative->is_boolean()) return refuse_field("cooperative", "is neither true nor false");
    launch.is_cooperative = cooperative->get<bool>();
  }
  return launch;
}

}  // namespace

Result<std::string> text_of(const Json& json, std::string_view field) {
  if (!json.is_string()) return refuse_field(field, "is no text");
  return json.get<std::string>();
}

Result<std::string> optional_text(const Json& json, std::string_view field) {
  const auto found = json.find(field);
  if (found == json.end() || found->is_null()) return std::string();
  return text_of(*found, field);
}

Result<std::string> required_text(const Json& json, std::string_view field) {
  DORAJIT_ASSIGN(std::string text, optional_text(json, field));
  if (text.empty()) return refuse_field(field, "is missing or empty");
  return text;
}

Result<std::string> expression_of(const Json& json, std::string_view field) {
  if (json.is_number_integer()) return json.dump();
  if (json.is_string() && !json.get_ref<const std::string&>().empty()) {
    return json.get<std::string>();
  }
  return refuse_field(field, "is no expression; give a text or an integer");
}

Result<std::vector<Launch>> read_launches(const Json& json) {
  std::vector<Launch> read;
  const auto launches = json.find("launches");
  if (launches == json.end() || launches->is_null()) {
    DORAJIT_ASSIGN(Launch launch, launch_of(json));
    read.push_back(std::move(launch));
    return read;
  }
  if (!launches->is_array() || launches->empty() || launches->size() > Description::kMaxLaunches) {
    return refuse_field("launches",
                        std::format("is no list of 1 to {} objects", Description::kMaxLaunches));
  }
  for (const std::string_view field : kLaunchFields) {
    if (!json.contains(field)) continue;
    return refuse_field(field, "stands beside \"launches\"; give it for each launch there");
  }
  for (const Json& one : *launches) {
    if (!one.is_object()) return refuse_field("launches", "has what is no object");
    for (const auto& [field, value] : one.items()) {
      if (std::ranges::contains(kLaunchFields, field)) continue;
      return refuse_field("launches", std::format("has the field \"{}\"; there are entry, grid, "
                                                  "block, shared_memory, cluster and cooperative",
                                                  field.substr(0, 100)));
    }
    DORAJIT_ASSIGN(Launch launch, launch_of(one));
    read.push_back(std::move(launch));
  }
  return read;
}

void write_launch(Json& json, const Launch& launch) {
  json["grid"] = launch.grid;
  json["block"] = launch.block;
  json["shared_memory"] = launch.shared_memory;
  // Left out if there are none: kernels without them keep their names.
  if (launch.cluster) json["cluster"] = *launch.cluster;
  if (launch.is_cooperative) json["cooperative"] = true;
}

}  // namespace dorajit::own_kernels
