#include "own_kernels/description.h"

#include <algorithm>
#include <format>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernel_templates/integer_types.h"
#include "runtime/base/json_text.h"

namespace dorajit::own_kernels {
namespace {

using Json = nlohmann::ordered_json;
using kernels::ElementType;
using Kind = Argument::Kind;

// Besides integers.
constexpr std::pair<std::string_view, ElementType> kTypes[] = {{"float32", ElementType::kFloat32},
                                                               {"bfloat16", ElementType::kBfloat16},
                                                               {"float16", ElementType::kFloat16},
                                                               {"float64", ElementType::kFloat64}};
constexpr std::pair<std::string_view, Kind> kKinds[] = {
    {"in", Kind::kIn},           {"out", Kind::kOut},     {"inout", Kind::kInOut},
    {"int32", Kind::kInt32},     {"int64", Kind::kInt64}, {"float32", Kind::kFloat32},
    {"float64", Kind::kFloat64},
};
constexpr std::string_view kFields[] = {
    "name",      "source",        "file",       "entry",     "headers",    "options",
    "arguments", "types",         "parameters", "default",   "constraint", "grid",
    "block",     "shared_memory", "key",        "tolerance", "limits"};

std::unexpected<Error> refuse(std::string_view field, std::string_view what) {
  return fail(StatusCode::kInvalidArgument,
              std::format("kernel description: \"{}\" {}", field, what));
}

Result<std::string> text_of(const Json& json, std::string_view field) {
  if (!json.is_string()) return refuse(field, "is no text");
  return json.get<std::string>();
}

// Empty where the field is missing.
Result<std::string> optional_text(const Json& json, std::string_view field) {
  const auto found = json.find(field);
  if (found == json.end() || found->is_null()) return std::string();
  return text_of(*found, field);
}

Result<std::string> required_text(const Json& json, std::string_view field) {
  DORAJIT_ASSIGN(std::string text, optional_text(json, field));
  if (text.empty()) return refuse(field, "is missing or empty");
  return text;
}

// A number or a text is an expression.
Result<std::string> expression_of(const Json& json, std::string_view field) {
  if (json.is_number_integer()) return json.dump();
  if (json.is_string() && !json.get_ref<const std::string&>().empty()) {
    return json.get<std::string>();
  }
  return refuse(field, "is no expression; give a text or an integer");
}

Result<std::array<std::string, 3>> expressions_of(const Json& json, std::string_view field) {
  std::array<std::string, 3> expressions = {"1", "1", "1"};
  const auto found = json.find(field);
  if (found == json.end()) return refuse(field, "is missing");
  if (!found->is_array()) {
    DORAJIT_ASSIGN(expressions[0], expression_of(*found, field));
    return expressions;
  }
  if (found->empty() || found->size() > 3) return refuse(field, "has not 1 to 3 expressions");
  for (std::size_t i = 0; i < found->size(); ++i) {
    DORAJIT_ASSIGN(expressions[i], expression_of((*found)[i], field));
  }
  return expressions;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// "T[n, m]"
Status read_tensor(Argument& argument, std::string_view text) {
  const std::size_t open = text.find('[');
  if (open == std::string_view::npos || !text.ends_with(']')) {
    return refuse("arguments", std::format("has `{}` of \"{}\"; write a tensor as \"T[n, m]\"",
                                           argument.name, text));
  }
  argument.type = trimmed(text.substr(0, open));
  std::string_view rest = text.substr(open + 1, text.size() - open - 2);
  for (;;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    argument.shape.emplace_back(trimmed(rest.substr(0, comma)));
    if (comma == rest.size()) return {};
    rest.remove_prefix(comma + 1);
  }
}

Result<Argument> argument_of(const Json& json) {
  const bool is_list_of_texts =
      json.is_array() && json.size() >= 2 && json.size() <= 3 &&
      std::ranges::all_of(json, [](const Json& part) { return part.is_string(); });
  if (!is_list_of_texts) {
    return refuse("arguments",
                  "has an entry that is not [name, \"in\", \"out\" or \"inout\", "
                  "\"T[n]\"] or [name, type of a scalar]");
  }
  Argument argument{.name = json[0].get<std::string>(), .kind = Kind::kIn};
  const std::string kind = json[1].get<std::string>();
  const auto* const found =
      std::ranges::find(kKinds, kind, &std::pair<std::string_view, Kind>::first);
  if (found == std::end(kKinds)) {
    return refuse("arguments", std::format("has `{}` of kind \"{}\"; there are in, out and inout, "
                                           "and int32, int64, float32 and float64 for scalars",
                                           argument.name, kind));
  }
  argument.kind = found->second;
  if (argument.is_tensor() != (json.size() == 3)) {
    return refuse("arguments",
                  std::format("has `{}`, {}", argument.name,
                              argument.is_tensor() ? "a tensor, without its shape; add \"T[n]\""
                                                   : "a scalar, with a shape; leave it out"));
  }
  if (argument.is_tensor()) DORAJIT_TRY(read_tensor(argument, json[2].get<std::string>()));
  return argument;
}

Result<TypeChoice> type_choice(const std::string& name, const Json& json) {
  TypeChoice choice{.name = name, .types = {}};
  if (!json.is_array() || json.empty()) return refuse("types", "has no list of types for a name");
  for (const Json& one : json) {
    const auto type = parse_type_name(one.is_string() ? one.get<std::string>() : one.dump());
    if (!type) {
      return refuse("types", std::format("has {} for `{}`; there are {}",
                                         one.dump(-1, ' ', true, Json::error_handler_t::replace),
                                         name, type_names()));
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
  if (!fits) return refuse(field, std::format("has for `{}` what is no integer of 32 bits", name));
  return json.get<int>();
}

Status read_parameters(Description& description, const Json& json) {
  const auto parameters = json.find("parameters");
  const auto standard = json.find("default");
  if (parameters == json.end()) return {};
  if (!parameters->is_object()) return refuse("parameters", "is no object of lists by name");
  if (standard == json.end() || !standard->is_object()) {
    return refuse("default", "is missing; give a value for each parameter");
  }
  for (const auto& [name, values] : parameters->items()) {
    if (!values.is_array() || values.empty()) {
      return refuse("parameters", std::format("has no list of values for `{}`", name));
    }
    Parameter parameter{.name = name, .values = {}, .standard = 0};
    for (const Json& one : values) {
      DORAJIT_ASSIGN(const int value, number_of(one, "parameters", name));
      if (!std::ranges::contains(parameter.values, value)) parameter.values.push_back(value);
    }
    const auto chosen = standard->find(name);
    if (chosen == standard->end()) {
      return refuse("default", std::format("has no value for `{}`", name));
    }
    DORAJIT_ASSIGN(parameter.standard, number_of(*chosen, "default", name));
    if (!std::ranges::contains(parameter.values, parameter.standard)) {
      return refuse("default", std::format("has {} for `{}`, which is none of its values",
                                           parameter.standard, name));
    }
    description.parameters.push_back(std::move(parameter));
  }
  if (standard->size() != parameters->size()) {
    return refuse("default", "has a name that is no parameter");
  }
  return {};
}

Status read_sources(Description& description, const Json& json) {
  DORAJIT_ASSIGN(description.source.text, required_text(json, "source"));
  DORAJIT_ASSIGN(description.source.name, optional_text(json, "file"));
  if (description.source.name.empty()) description.source.name = description.name + ".cu";
  if (const auto headers = json.find("headers"); headers != json.end()) {
    if (!headers->is_object()) return refuse("headers", "is no object of texts by name");
    for (const auto& [name, text] : headers->items()) {
      DORAJIT_ASSIGN(std::string content, text_of(text, "headers"));
      description.headers.push_back({name, std::move(content)});
    }
  }
  if (const auto options = json.find("options"); options != json.end()) {
    if (!options->is_array()) return refuse("options", "is no list");
    for (const Json& option : *options) {
      DORAJIT_ASSIGN(std::string text, text_of(option, "options"));
      description.options.push_back(std::move(text));
    }
  }
  return {};
}

Status read_key(Description& description, const Json& json) {
  const auto key = json.find("key");
  if (key == json.end() || key->is_null()) return {};
  if (!key->is_array()) return refuse("key", "is no list");
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
  if (!limits->is_object()) return refuse("limits", "is no object of expressions by argument");
  for (const auto& [argument, limit] : limits->items()) {
    DORAJIT_ASSIGN(std::string text, expression_of(limit, "limits"));
    description.limits.emplace_back(argument, std::move(text));
  }
  return {};
}

Status read_tolerance(Description& description, const Json& json) {
  const auto tolerance = json.find("tolerance");
  if (tolerance == json.end() || tolerance->is_null()) return {};
  description.tolerance = tolerance->is_number() ? tolerance->get<double>() : -1;
  if (description.tolerance >= 0 && description.tolerance <= 1) return {};
  return refuse("tolerance", "is no number from 0 to 1, relative to the outputs");
}

Status read_lists(Description& description, const Json& json) {
  const auto arguments = json.find("arguments");
  if (arguments == json.end() || !arguments->is_array()) {
    return refuse("arguments", "is no list");
  }
  for (const Json& one : *arguments) {
    DORAJIT_ASSIGN(Argument argument, argument_of(one));
    description.arguments.push_back(std::move(argument));
  }
  const auto types = json.find("types");
  if (types == json.end()) return {};
  if (!types->is_object()) return refuse("types", "is no object of lists by name");
  for (const auto& [name, choices] : types->items()) {
    DORAJIT_ASSIGN(TypeChoice choice, type_choice(name, choices));
    description.types.push_back(std::move(choice));
  }
  return {};
}

}  // namespace

std::string_view type_name(ElementType type) {
  if (const auto* const integer = kernels::as_integer(type)) return integer->name;
  for (const auto& [name, known] : kTypes) {
    if (known == type) return name;
  }
  return {};
}

std::optional<ElementType> parse_type_name(std::string_view name) {
  for (const auto& [known, type] : kTypes) {
    if (known == name) return type;
  }
  for (const kernels::IntegerType& integer : kernels::kIntegerTypes) {
    if (integer.name == name) return integer.type;
  }
  return std::nullopt;
}

std::string type_names() {
  std::string names;
  const auto add = [&](std::string_view name) {
    names += std::format("{}{}", names.empty() ? "" : ", ", name);
  };
  for (const auto& [name, type] : kTypes) add(name);
  for (const kernels::IntegerType& integer : kernels::kIntegerTypes) add(integer.name);
  return names;
}

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
    return refuse(field, std::format("is no field; there are{}", known));
  }
  Description description;
  DORAJIT_ASSIGN(description.name, required_text(json, "name"));
  DORAJIT_TRY(read_sources(description, json));
  DORAJIT_ASSIGN(description.entry, required_text(json, "entry"));
  DORAJIT_TRY(read_lists(description, json));
  DORAJIT_TRY(read_parameters(description, json));
  DORAJIT_ASSIGN(description.constraint, optional_text(json, "constraint"));
  DORAJIT_ASSIGN(description.grid, expressions_of(json, "grid"));
  DORAJIT_ASSIGN(description.block, expressions_of(json, "block"));
  description.shared_memory = "0";
  if (const auto shared = json.find("shared_memory"); shared != json.end()) {
    DORAJIT_ASSIGN(description.shared_memory, expression_of(*shared, "shared_memory"));
  }
  DORAJIT_TRY(read_key(description, json));
  DORAJIT_TRY(read_tolerance(description, json));
  DORAJIT_TRY(read_limits(description, json));
  return description;
}

std::string to_json(const Description& description) {
  Json json;
  json["name"] = description.name;
  json["source"] = description.source.text;
  json["file"] = description.source.name;
  json["entry"] = description.entry;
  json["headers"] = Json::object();
  for (const auto& [name, text] : description.headers) json["headers"][name] = text;
  json["options"] = description.options;
  json["arguments"] = Json::array();
  for (const Argument& argument : description.arguments) {
    const auto* const kind =
        std::ranges::find(kKinds, argument.kind, &std::pair<std::string_view, Kind>::second);
    Json entry = {argument.name, kind->first};
    if (argument.is_tensor()) {
      std::string shape;
      for (const std::string& dimension : argument.shape) {
        shape += std::format("{}{}", shape.empty() ? "" : ", ", dimension);
      }
      entry.push_back(std::format("{}[{}]", argument.type, shape));
    }
    json["arguments"].push_back(std::move(entry));
  }
  json["types"] = Json::object();
  for (const auto& [name, types] : description.types) {
    Json& names = json["types"][name] = Json::array();
    for (const ElementType type : types) names.push_back(type_name(type));
  }
  json["parameters"] = json["default"] = Json::object();
  for (const auto& [name, values, standard] : description.parameters) {
    json["parameters"][name] = values;
    json["default"][name] = standard;
  }
  json["constraint"] = description.constraint;
  json["grid"] = description.grid;
  json["block"] = description.block;
  json["shared_memory"] = description.shared_memory;
  if (description.key) {
    Json& key = json["key"] = Json::array();
    for (const auto& [name, is_bucketed] : *description.key) {
      key.push_back(is_bucketed ? std::format("bucket({})", name) : name);
    }
  }
  json["tolerance"] = description.tolerance;
  // Left out if there are none: kernels without limits keep their names.
  for (const auto& [argument, limit] : description.limits) json["limits"][argument] = limit;
  // Invalid UTF-8 must not throw here.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace dorajit::own_kernels
