// Reads fields of a description's JSON; kInvalidArgument by the field.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "own_kernels/description.h"
#include "runtime/base/error.h"

namespace dorajit::own_kernels {

Result<std::string> text_of(const nlohmann::ordered_json& json, std::string_view field);
// Empty where the field is missing.
Result<std::string> optional_text(const nlohmann::ordered_json& json, std::string_view field);
Result<std::string> required_text(const nlohmann::ordered_json& json, std::string_view field);

// A number or a text is an expression.
Result<std::string> expression_of(const nlohmann::ordered_json& json, std::string_view field);

// Of "launches", or the launch whose fields stand in the description.
Result<std::vector<Launch>> read_launches(const nlohmann::ordered_json& description);
// All fields but "entry".
void write_launch(nlohmann::ordered_json& json, const Launch& launch);

}  // namespace dorajit::own_kernels
