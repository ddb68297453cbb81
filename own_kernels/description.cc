#include "own_kernels/description.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "own_kernels/json_fields.h"
#include "runtime/base/json_text.h"

namespace dorajit::own_kernels {
namespace {

using Json = nlohmann::ordered_json;
using kernels::ElementType;

constexpr std::string_view kFields[] = {
    "name",      "source",        "file",       "entry",     "headers",     "options",
    "arguments", "types",         "parameters", "default",   "constraint",  "grid",
    "block",     "shared_memory", "key",        "tolerance", "limits",      "ranges",
    "include",   "included",      "launches",   "cluster",   "cooperative", "unaligned"};

Result<TypeChoice> type_choice(const std::string& name, const Json& json) {
  TypeChoice choice{.name = name, .types = {}};
  if (!json.is_array() || json.empty())
    return refuse_field("types", "has no list of types for a name");
  for (const Json& one : json) {
    const auto type = parse_type_name(one.is_string() ? one.get<std::string>() : one.dump());
    if (!type) {
      return refuse_field(
          "types",
          std::format("has {} for `{}`; there are {}",
                      one.dump(-1, ' ', true, Json::error_handler_t::replace), name, type_names()));
    }
    if (!std::ranges::contains(choice.types, *type)) choice.types.push_back(*type);
  }
  return choice;
}

Result<int> number_of(const Json& json, std::string_view field, std::string_view name) {
  const bool fits = json.is_number_integer() &&
                    (!json.is_number_unsigned() ||
                     json.get<std::uint64_t>() <= std::numeric_limits<int>::max()) &&
                    json.get<std::int64_t>() >= std::numeric_limits<int>::min() &&
                    json.get<std::int64_t>() <= std::numeric_limits<int>::max();
  if (!fits)
    return refuse_field(field, std::format("has for `{}` what is no integer of 32 bits", name));
  return json.get<int>();
}

Status read_parameters(Description& description, const Json& json) {
  const auto parameters = json.find("parameters");
  const auto standard = json.find("default");
  if (parameters == json.end()) return {};
  if (!parameters->is_object()) return refuse_field("parameters", "is no object of lists by name");
  if (standard == json.end() || !standard->is_object()) {
    return refuse_field("default", "is missing; give a value for each parameter");
  }
  for (const auto& [name, values] : parameters->items()) {
    if (!values.is_array() || values.empty()) {
      return refuse_field("parameters", std::format("has no list of values for `{}`", name));
    }
    Parameter parameter{.name = name, .values = {}, .standard = 0};
    for (const Json& one : values) {
      DORAJIT_ASSIGN(const int value, number_of(one, "parameters", name));
      if (!std::ranges::contains(parameter.values, value)) parameter.values.push_back(value);
    }
    const auto chosen = standard->find(name);
    if (chosen == standard->end()) {
      return refuse_field("default", std::format("has no value for `{}`", name));
    }
    if (chosen->is_string()) {
      DORAJIT_ASSIGN(parameter.standard_of_sizes, expression_of(*chosen, "default"));
      parameter.standard = parameter.values.front();
    } else {
      DORAJIT_ASSIGN(parameter.standard, number_of(*chosen, "default", name));
    }
    if (!std::ranges::contains(parameter.values, parameter.standard)) {
      return refuse_field("default", std::format("has {} for `{}`, which is none of its values",
                                                 parameter.standard, name));
    }
    description.parameters.push_back(std::move(parameter));
  }
  if (standard->size() != parameters->size()) {
    return refuse_field("default", "has a name that is no parameter");
  }
  return {};
}

Status read_texts(const Json& json, std::string_view field, std::vector<std::string>& texts) {
  const auto found = json.find(field);
  if (found == json.end()) return {};
  if (!found->is_array()) return refuse_field(field, "is no list of texts");
  for (const Json& one : *found) {
    DORAJIT_ASSIGN(std::string text, text_of(one, field));
    texts.push_back(std::move(text));
  }
  return {};
}

Status read_sources(Description& description, const Json& json) {
  DORAJIT_ASSIGN(description.source.text, required_text(json, "source"));
  DORAJIT_ASSIGN(description.source.name, optional_text(json, "file"));
  if (description.source.name.empty()) description.source.name = description.name + ".cu";
  if (const auto headers = json.find("headers"); headers != json.end()) {
    if (!headers->is_object()) return refuse_field("headers", "is no object of texts by name");
    for (const auto& [name, text] : headers->items()) {
      DORAJIT_ASSIGN(std::string content, text_of(text, "headers"));
      description.headers.push_back({name, std::move(content)});
    }
  }
  DORAJIT_TRY(read_texts(json, "include", description.include));
  if (const auto included = json.find("included"); included != json.end()) {
    if (!included->is_object()) return refuse_field("included", "is no object of hashes by name");
    for (const auto& [name, hash] : included->items()) {
      DORAJIT_ASSIGN(std::string text, text_of(hash, "included"));
      description.included.push_back({.name = name, .hash = std::move(text), .text = {}});
    }
  }
  return read_texts(json, "options", description.options);
}

Status read_key(Description& description, const Json& json) {
  const auto key = json.find("key");
  if (key == json.end() || key->is_null()) return {};
  if (!key->is_array()) return refuse_field("key", "is no list");
  description.key.emplace();
  constexpr std::string_view kBucket = "bucket(";
  for (const Json& entry : *key) {
    DORAJIT_ASSIGN(const std::string whole, text_of(entry, "key"));
    std::string_view text = trimmed(whole);
    const bool is_bucketed = text.starts_with(kBucket) && text.ends_with(')');
    if (is_bucketed) {
      text = trimmed(text.substr(kBucket.size(), text.size() - kBucket.size() - 1));
    }
    description.key->push_back({.name = std::string(text), .is_bucketed = is_bucketed});
  }
  return {};
}

Status read_limits(Description& description, const Json& json) {
  const auto limits = json.find("limits");
  if (limits == json.end() || limits->is_null()) return {};
  if (!limits->is_object())
    return refuse_field("limits", "is no object of expressions by argument");
  for (const auto& [argument, limit] : limits->items()) {
    DORAJIT_ASSIGN(std::string text, expression_of(limit, "limits"));
    description.limits.emplace_back(argument, std::move(text));
  }
  return {};
}

Status read_ranges(Description& description, const Json& json) {
  const auto ranges = json.find("ranges");
  if (ranges == json.end() || ranges->is_null()) return {};
  if (!ranges->is_object()) return refuse_field("ranges", "is no object of ranges by argument");
  for (const auto& [argument, range] : ranges->items()) {
    const bool has_two =
        range.is_array() && range.size() == 2 && range[0].is_number() && range[1].is_number();
    if (!has_two || !(range[0].get<double>() <= range[1].get<double>()) ||
        !std::isfinite(range[1].get<double>() - range[0].get<double>())) {
      return refuse_field(
          "ranges", std::format("has for `{}` what is no [least, most]", argument.substr(0, 100)));
    }
    description.ranges.emplace_back(
        argument, kernels::Range{.least = range[0].get<double>(), .most = range[1].get<double>()});
  }
  return {};
}

Status read_tolerance(Description& description, const Json& json) {
  const auto tolerance = json.find("tolerance");
  if (tolerance == json.end() || tolerance->is_null()) return {};
  description.tolerance = tolerance->is_number() ? tolerance->get<double>() : -1;
  if (description.tolerance >= 0 && description.tolerance <= 1) return {};
  return refuse_field("tolerance", "is no number from 0 to 1, relative to the outputs");
}

Status read_lists(Description& description, const Json& json) {
  const auto arguments = json.find("arguments");
  if (arguments == json.end() || !arguments->is_array()) {
    return refuse_field("arguments", "is no list");
  }
  for (const Json& one : *arguments) {
    DORAJIT_ASSIGN(Argument argument, read_argument(one));
    description.arguments.push_back(std::move(argument));
  }
  const auto types = json.find("types");
  if (types == json.end()) return {};
  if (!types->is_object()) return refuse_field("types", "is no object of lists by name");
  for (const auto& [name, choices] : types->items()) {
    DORAJIT_ASSIGN(TypeChoice choice, type_choice(name, choices));
    description.types.push_back(std::move(choice));
  }
  return {};
}

// Among the choices of types, which were read before.
bool has_native_types(const Json& json) {
  const auto types = json.find("types");
  if (types == json.end()) return false;
  return std::ranges::any_of(*types, [](const Json& choices) {
    return std::ranges::any_of(choices, [](const Json& type) {
      return is_native_type(type.get_ref<const std::string&>());
    });
  });
}

}  // namespace

Result<Description> parse_description(std::string_view text) {
  if (text.size() > Description::kMaxBytes) {
    return fail(StatusCode::kInvalidArgument,
                std::format("a kernel description has {} bytes; at most {} are served", text.size(),
                            Description::kMaxBytes));
  }
  const auto parsed = parse_json(text);
  if (!parsed) {
    return fail(StatusCode::kInvalidArgument,
                std::format("a kernel description is not JSON: {}", parsed.error().message));
  }
  const Json& json = *parsed;
  if (!json.is_object()) {
    return fail(StatusCode::kInvalidArgument, "a kernel description is no JSON object");
  }
  for (const auto& [field, value] : json.items()) {
    if (std::ranges::contains(kFields, field)) continue;
    std::string known;
    for (const std::string_view one : kFields) known += std::format(" {}", one);
    return refuse_field(field, std::format("is no field; there are{}", known));
  }
  Description description;
  DORAJIT_ASSIGN(description.name, required_text(json, "name"));
  DORAJIT_TRY(read_sources(description, json));
  DORAJIT_ASSIGN(description.launches, read_launches(json));
  DORAJIT_TRY(read_lists(description, json));
  description.has_native_types =
      std::ranges::any_of(description.arguments,
                          [](const Argument& argument) { return is_native_type(argument.type); }) ||
      has_native_types(json);
  DORAJIT_TRY(read_parameters(description, json));
  DORAJIT_ASSIGN(description.constraint, optional_text(json, "constraint"));
  DORAJIT_TRY(read_key(description, json));
  DORAJIT_TRY(read_tolerance(description, json));
  DORAJIT_TRY(read_limits(description, json));
  DORAJIT_TRY(read_ranges(description, json));
  DORAJIT_TRY(read_texts(json, "unaligned", description.unaligned));
  return description;
}

std::string to_json(const Description& description) {
  Json json;
  json["name"] = description.name;
  json["source"] = description.source.text;
  json["file"] = description.source.name;
  const bool has_one_launch = description.launches.size() == 1;
  if (has_one_launch) json["entry"] = description.launches.front().entry;
  json["headers"] = Json::object();
  for (const auto& [name, text] : description.headers) json["headers"][name] = text;
  json["options"] = description.options;
  json["arguments"] = Json::array();
  for (const Argument& argument : description.arguments) {
    json["arguments"].push_back(to_json(argument));
  }
  json["types"] = Json::object();
  for (const auto& [name, types] : description.types) {
    Json& names = json["types"][name] = Json::array();
    for (const ElementType type : types) {
      names.push_back(type_name(type, description.has_native_types));
    }
  }
  json["parameters"] = json["default"] = Json::object();
  for (const auto& [name, values, standard, standard_of_sizes] : description.parameters) {
    json["parameters"][name] = values;
    json["default"][name] = standard_of_sizes.empty() ? Json(standard) : Json(standard_of_sizes);
  }
  json["constraint"] = description.constraint;
  if (has_one_launch) write_launch(json, description.launches.front());
  for (const Launch& launch : description.launches) {
    if (has_one_launch) break;
    Json& one = json["launches"].emplace_back(Json{{"entry", launch.entry}});
    write_launch(one, launch);
  }
  if (description.key) {
    Json& key = json["key"] = Json::array();
    for (const auto& [name, is_bucketed] : *description.key) {
      key.push_back(is_bucketed ? std::format("bucket({})", name) : name);
    }
  }
  json["tolerance"] = description.tolerance;
  // Left out if there are none: kernels without them keep their names.
  for (const auto& [argument, limit] : description.limits) json["limits"][argument] = limit;
  for (const auto& [argument, range] : description.ranges) {
    json["ranges"][argument] = {range.least, range.most};
  }
  if (!description.unaligned.empty()) json["unaligned"] = description.unaligned;
  for (const auto& [name, hash, text] : description.included) json["included"][name] = hash;
  // Invalid UTF-8 must not throw here.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace dorajit::own_kernels
