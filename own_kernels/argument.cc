#include "own_kernels/argument.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <format>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "kernel_templates/float8.h"
#include "own_kernels/json_fields.h"

namespace dorajit::own_kernels {
namespace {

using Json = nlohmann::ordered_json;
using kernels::ElementType;
using Kind = Argument::Kind;

// Besides integers.
constexpr std::pair<std::string_view, ElementType> kTypes[] = {
    {"float32", ElementType::kFloat32},      {"bfloat16", ElementType::kBfloat16},
    {"float16", ElementType::kFloat16},      {"float64", ElementType::kFloat64},
    {"float8_e4m3fn", kernels::kFloat8E4m3}, {"float8_e5m2", kernels::kFloat8E5m2}};
constexpr std::pair<std::string_view, ElementType> kNativeTypes[] = {
    {"__half", ElementType::kFloat16},
    {"__nv_bfloat16", ElementType::kBfloat16},
    {"__nv_fp8_e4m3", kernels::kFloat8E4m3},
    {"__nv_fp8_e5m2", kernels::kFloat8E5m2}};
constexpr std::pair<std::string_view, Kind> kKinds[] = {{"in", Kind::kIn},
                                                        {"out", Kind::kOut},
                                                        {"inout", Kind::kInOut},
                                                        {"workspace", Kind::kWorkspace},
                                                        {"tensor_map", Kind::kTensorMap}};

std::unexpected<Error> refuse(std::string_view what) { return refuse_field("arguments", what); }

// The end of a dimension: the first comma outside parentheses.
std::size_t end_of_dimension(std::string_view text) {
  int open = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    open += static_cast<int>(text[at] == '(') - static_cast<int>(text[at] == ')');
    if (text[at] == ',' && open <= 0) return at;
  }
  return text.size();
}

// "T[n, m]", "T[n:stride, m / 2]", or "T[n, m]?"
Status read_tensor(Argument& argument, std::string_view text) {
  const std::string_view whole = text;
  argument.is_optional = argument.is_tensor() && text.ends_with('?');
  if (argument.is_optional) text = trimmed(text.substr(0, text.size() - 1));
  const std::size_t open = text.find('[');
  if (open == std::string_view::npos || !text.ends_with(']')) {
    return refuse(
        std::format("has `{}` of \"{}\"; write a tensor as \"T[n, m]\"", argument.name, whole));
  }
  argument.type = trimmed(text.substr(0, open));
  std::string_view rest = text.substr(open + 1, text.size() - open - 2);
  if (argument.is_workspace()) {
    argument.shape.emplace_back(trimmed(rest));
    return {};
  }
  for (;;) {
    const std::size_t comma = end_of_dimension(rest);
    const std::string_view dimension = rest.substr(0, comma);
    const std::size_t colon = std::min(dimension.find(':'), dimension.size());
    argument.shape.emplace_back(trimmed(dimension.substr(0, colon)));
    argument.strides.emplace_back(trimmed(dimension.substr(std::min(colon + 1, dimension.size()))));
    if (colon < dimension.size() && argument.strides.back().empty()) {
      return refuse(std::format("has `{}` of \"{}\", where a stride is missing after a colon",
                                argument.name, whole));
    }
    if (comma == rest.size()) return {};
    rest.remove_prefix(comma + 1);
  }
}

bool is_scalar_type(std::string_view name) {
  const auto type = parse_type_name(name);
  return type && (kernels::as_integer(*type) != nullptr || type == ElementType::kFloat32 ||
                  type == ElementType::kFloat64);
}

Status read_scalar(Argument& argument, const Json& json) {
  argument.kind = Kind::kScalar;
  argument.type = json[1].get<std::string>();
  if (json.size() == 2) return {};
  const Json& value = json[2];
  if (value.is_string()) {
    return refuse(std::format("has `{}`, a scalar, with a shape; leave it out", argument.name));
  }
  argument.tuned =
      value.is_boolean() ? static_cast<double>(value.get<bool>()) : value.get<double>();
  const kernels::IntegerType* const integer = argument.integer();
  if (integer == nullptr) {
    const double most = largest_of(*parse_type_name(argument.type));
    if (std::abs(*argument.tuned) <= most) return {};
    return refuse(std::format("has for `{}` the value {} for tuning, beyond {:.6g}, the largest {}",
                              argument.name, *argument.tuned, most, argument.type));
  }
  const auto [least, most] = range_of(*integer);
  if (*argument.tuned >= least && *argument.tuned <= most &&
      *argument.tuned == std::floor(*argument.tuned)) {
    return {};
  }
  return refuse(
      std::format("has for `{}` the value {} for tuning; {} is an integer "
                  "from {:.0f} to {:.0f}",
                  argument.name, *argument.tuned, argument.type, least, most));
}

// {"of": "a", "box": ["ROWS", 64], "swizzle": 128}
Status read_tensor_map(Argument& argument, const Json& json) {
  for (const auto& [field, value] : json.items()) {
    if (field == "of" || field == "box" || field == "swizzle") continue;
    return refuse(std::format("has the field \"{}\" in `{}`; a tensor map has of, box and swizzle",
                              field.substr(0, 100), argument.name));
  }
  const auto of = json.find("of");
  const auto box = json.find("box");
  if (of == json.end() || !of->is_string() || box == json.end() || !box->is_array()) {
    return refuse(std::format(
        "has `{}`, a tensor map, without its tensor or box; give {{\"of\": \"x\", \"box\": [...]}}",
        argument.name));
  }
  argument.tensor = of->get<std::string>();
  for (const Json& side : *box) {
    DORAJIT_ASSIGN(std::string text, expression_of(side, "arguments"));
    argument.shape.push_back(std::move(text));
  }
  argument.swizzle = "0";
  if (const auto swizzle = json.find("swizzle"); swizzle != json.end()) {
    DORAJIT_ASSIGN(argument.swizzle, expression_of(*swizzle, "arguments"));
  }
  return {};
}

}  // namespace

double largest_of(ElementType type) {
  if (const kernels::Float8Type* const float8 = kernels::as_float8(type)) return float8->largest;
  switch (type) {
    case ElementType::kFloat32:
      return std::numeric_limits<float>::max();
    case ElementType::kBfloat16:
      return 0x1.fep127;
    case ElementType::kFloat16:
      return 65504;
    case ElementType::kFloat64:
      return std::numeric_limits<double>::max();
    default:
      return std::numeric_limits<double>::infinity();
  }
}

std::unexpected<Error> refuse_description(std::string_view what) {
  return fail(StatusCode::kInvalidArgument, std::format("kernel description: {}", what));
}

std::unexpected<Error> refuse_field(std::string_view field, std::string_view what) {
  return refuse_description(std::format("\"{}\" {}", field, what));
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

bool is_native_type(std::string_view type) {
  return std::ranges::contains(kNativeTypes, type,
                               &std::pair<std::string_view, ElementType>::first);
}

const kernels::IntegerType* Argument::integer() const {
  if (!is_scalar()) return nullptr;
  const auto known = parse_type_name(type);
  return known ? kernels::as_integer(*known) : nullptr;
}

std::pair<double, double> range_of(const kernels::IntegerType& type) {
  constexpr double kMost = 0x1p53 - 1;
  const double most = std::min(static_cast<double>(type.most), kMost);
  const bool is_signed = type.name.starts_with("int");
  return {is_signed ? std::max(-static_cast<double>(type.most) - 1, -kMost) : 0, most};
}

std::optional<std::int64_t> constant_of(std::string_view dimension) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(dimension.begin(), dimension.end(), value);
  const bool is_number = error == std::errc() && end == dimension.end() && value > 0;
  return is_number ? std::optional(value) : std::nullopt;
}

std::string_view type_name(ElementType type, bool is_native_type) {
  const auto* const native =
      std::ranges::find(kNativeTypes, type, &std::pair<std::string_view, ElementType>::second);
  if (is_native_type && native != std::end(kNativeTypes)) return native->first;
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
  for (const auto& [known, type] : kNativeTypes) {
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
  for (const auto& [name, type] : kTypes) {
    if (!kernels::is_float8(type)) add(name);
  }
  for (const kernels::IntegerType& integer : kernels::kIntegerTypes) add(integer.name);
  for (const auto& [name, type] : kTypes) {
    if (kernels::is_float8(type)) add(name);
  }
  return names;
}

std::string shape_text(const Argument& argument) {
  std::string text;
  for (std::size_t i = 0; i < argument.shape.size(); ++i) {
    const bool has_stride = i < argument.strides.size() && !argument.strides[i].empty();
    text += std::format("{}{}{}{}", i == 0 ? "" : ", ", argument.shape[i], has_stride ? ":" : "",
                        has_stride ? argument.strides[i] : "");
  }
  return text;
}

Result<Argument> read_argument(const Json& json) {
  const bool is_entry = json.is_array() && json.size() >= 2 && json.size() <= 3 &&
                        json[0].is_string() && json[1].is_string() &&
                        (json.size() == 2 || json[2].is_string() || json[2].is_number() ||
                         json[2].is_boolean() || json[2].is_object());
  if (!is_entry) {
    return refuse(
        "has an entry that is not [name, \"in\", \"out\", \"inout\" or \"workspace\", "
        "\"T[n]\"], [name, type of a scalar], [name, type, value for tuning] or [name, "
        "\"tensor_map\", {\"of\": tensor, \"box\": [...]}]");
  }
  Argument argument{.name = json[0].get<std::string>(), .kind = Kind::kIn};
  const std::string kind = json[1].get<std::string>();
  const bool has_fields = json.size() == 3 && json[2].is_object();
  if (is_scalar_type(kind)) {
    if (has_fields) return refuse(std::format("has `{}`, a scalar, with fields", argument.name));
    DORAJIT_TRY(read_scalar(argument, json));
    return argument;
  }
  const auto* const found =
      std::ranges::find(kKinds, kind, &std::pair<std::string_view, Kind>::first);
  if (found == std::end(kKinds)) {
    return refuse(std::format(
        "has `{}` of kind \"{}\"; there are in, out, inout, workspace and "
        "tensor_map, and float32, float64, bool and integers (int32, uint8, ...) for scalars",
        argument.name, kind));
  }
  argument.kind = found->second;
  if (argument.is_tensor_map()) {
    DORAJIT_TRY(read_tensor_map(argument, has_fields ? json[2] : Json::object()));
    return argument;
  }
  if (json.size() != 3 || !json[2].is_string()) {
    return refuse(
        std::format("has `{}`, a tensor, without its shape; add \"T[n]\"", argument.name));
  }
  DORAJIT_TRY(read_tensor(argument, json[2].get<std::string>()));
  return argument;
}

Json to_json(const Argument& argument) {
  const auto* const kind =
      std::ranges::find(kKinds, argument.kind, &std::pair<std::string_view, Kind>::second);
  Json entry = {argument.name, argument.is_scalar() ? argument.type : kind->first};
  if (argument.is_tensor_map()) {
    entry.push_back(
        {{"of", argument.tensor}, {"box", argument.shape}, {"swizzle", argument.swizzle}});
    return entry;
  }
  if (!argument.is_scalar()) {
    entry.push_back(std::format("{}[{}]{}", argument.type, shape_text(argument),
                                argument.is_optional ? "?" : ""));
  } else if (argument.tuned) {
    entry.push_back(*argument.tuned);
  }
  return entry;
}

}  // namespace dorajit::own_kernels
