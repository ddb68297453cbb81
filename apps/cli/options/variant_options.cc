#include "apps/cli/options/variant_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <format>
#include <ranges>
#include <string_view>
#include <utility>

#include "apps/cli/terminal/table.h"
#include "kernel_templates/integer_types.h"

namespace dorajit::cli {
namespace {

bool is_given(const kernels::Dimension& dimension) {
  return dimension.keying < kernels::Keying::kDerived;
}

// "--out-features" for `out_features`.
std::string option_of(std::string_view dimension) {
  std::string option = "--" + std::string(dimension);
  std::ranges::replace(option, '_', '-');
  return option;
}

std::string upper(std::string_view text) {
  std::string raised(text);
  std::ranges::transform(raised, raised.begin(), [](unsigned char c) { return std::toupper(c); });
  return raised;
}

// "ROWSxCOLS", the form of --shape.
std::string shape_form(const kernels::Operation& operation) {
  std::string text;
  for (const kernels::Dimension& dimension : operation.dimensions) {
    if (is_given(dimension)) text += (text.empty() ? "" : "x") + upper(dimension.name);
  }
  return text;
}

using kernels::ElementType;

Result<ElementType> parse_type(std::string_view option, std::string_view text) {
  const auto type = kernels::parse_element_type(text);
  if (type && !kernels::is_of_own_kernels(*type)) return *type;
  return fail(StatusCode::kInvalidArgument,
              std::format("{} {} is none of: f32, bf16, f16, f64", option, text));
}

Result<const kernels::Operation*> find_op(std::string_view name) {
  for (const kernels::Operation* op : kernels::all_operations()) {
    if (op->name == name) return op;
  }
  return fail(StatusCode::kInvalidArgument,
              std::format("--op {} is none of: {}", name,
                          joined(kernels::offered_operations(), ", ", &kernels::Operation::name)));
}

}  // namespace

void add_size_options(CLI::App& app, NamedSizes& sizes) {
  for (const kernels::Operation* operation : kernels::offered_operations()) {
    for (const kernels::Dimension& dimension : operation->dimensions) {
      if (!is_given(dimension)) continue;
      const auto [size, is_new] = sizes.try_emplace(std::string(dimension.name), 0);
      if (!is_new) continue;
      app.add_option(option_of(size->first), size->second,
                     std::format("A problem's size along `{}`", dimension.name))
          ->option_text(upper(dimension.name.substr(0, 1)));
    }
  }
}

bool names_any(const NamedSizes& sizes) {
  return std::ranges::any_of(sizes, [](const auto& named) { return named.second != 0; });
}

std::string size_options_text(const kernels::Operation& operation) {
  std::string text;
  for (const kernels::Dimension& dimension : operation.dimensions) {
    if (!is_given(dimension)) continue;
    text += std::format("{}{} {}", text.empty() ? "" : " ", option_of(dimension.name),
                        upper(dimension.name.substr(0, 1)));
  }
  return text;
}

std::optional<std::vector<std::int64_t>> parse_numbers(std::string_view text, char separator) {
  std::vector<std::int64_t> numbers;
  for (const auto part : std::views::split(text, separator)) {
    const std::string_view digits(part);
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), numbers.emplace_back());
    if (error != std::errc{} || end != digits.end()) return std::nullopt;
  }
  return numbers.empty() ? std::nullopt : std::optional(std::move(numbers));
}

Result<std::vector<std::int64_t>> parse_shape(std::string_view text,
                                              const kernels::Operation& operation) {
  if (auto sizes = parse_numbers(text, 'x')) return *std::move(sizes);
  return fail(StatusCode::kInvalidArgument,
              std::format("--shape {} is not of the form {}, the sizes of {}", text,
                          shape_form(operation), operation.name));
}

Result<kernels::Sizes> make_sizes(const kernels::Operation& operation,
                                  std::span<const std::int64_t> listed, const NamedSizes& named) {
  kernels::Sizes sizes{};
  std::size_t next = 0;
  for (std::size_t i = 0; i < operation.dimensions.size(); ++i) {
    const kernels::Dimension& dimension = operation.dimensions[i];
    if (!is_given(dimension)) continue;
    const auto own = named.find(dimension.name);
    const std::int64_t size = own == named.end() ? 0 : own->second;
    const bool is_listed = next < listed.size();
    if (is_listed && size != 0) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("--shape and {} both give the size `{}` of {}; give it once",
                              option_of(dimension.name), dimension.name, operation.name));
    }
    if (!is_listed && size == 0) {
      const auto given =
          std::ranges::find_if(named, [](const auto& one) { return one.second != 0; });
      return fail(StatusCode::kInvalidArgument,
                  std::format("{} requires {}: the sizes of {} are {}",
                              given == named.end() ? "--shape" : option_of(given->first),
                              option_of(dimension.name), operation.name, shape_form(operation)));
    }
    sizes[i] = is_listed ? listed[next++] : size;
    if (sizes[i] > 0) continue;
    return fail(StatusCode::kInvalidArgument,
                std::format("size {} along `{}` is invalid: it must be at least 1", sizes[i],
                            dimension.name));
  }
  for (const auto& [name, size] : named) {
    if (size != 0 &&
        !std::ranges::contains(operation.dimensions, name, &kernels::Dimension::name)) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("{} is not a size of {}, which has {}", option_of(name),
                              operation.name, shape_form(operation)));
    }
  }
  if (next == listed.size()) return sizes;
  return fail(StatusCode::kInvalidArgument,
              std::format("{} sizes are too many for {}, which has {}", listed.size(),
                          operation.name, shape_form(operation)));
}

void add_variant_options(CLI::App& app, VariantOptions& options) {
  CLI::Option* type =
      app.add_option("--type", options.type, "Element type of the activations [bf16]")
          ->option_text("f32|bf16|f16|f64");
  CLI::Option* gain = app.add_option("--gain-type", options.gain_type,
                                     "Element type of the gain [f32; f64 beside f64]")
                          ->option_text("f32|bf16|f16|f64");
  // Not by CLI11's delimiter, which drops empty parts.
  const auto read_types = [&options](const std::string& text) {
    options.types.clear();
    for (const auto part : std::views::split(text, ',')) {
      options.types.emplace_back(std::string_view(part));
    }
  };
  app.add_option_function<std::string>(
         "--types", read_types,
         "Element type of every operand instead, as in bf16,bf16,f32,bf16; - for one that is left "
         "out")
      ->option_text("TYPE,...")
      ->excludes(type)
      ->excludes(gain);
  app.add_flag("--per-row", options.is_per_row,
               "One gain per row instead of per column, as convolutions have it");
}

Result<kernels::Variant> make_variant(const VariantOptions& options) {
  DORAJIT_ASSIGN(const kernels::Operation* op, find_op(options.op));
  kernels::Variant variant{.operation = op};
  if (options.is_per_row) variant.broadcast = kernels::Broadcast::kPerRow;
  if (!options.types.empty()) {
    if (options.types.size() != op->operands.size()) {
      return fail(
          StatusCode::kInvalidArgument,
          std::format("--types {} names {} types; {} has {} operands: {}",
                      joined(options.types, ","), options.types.size(), op->name,
                      op->operands.size(), joined(op->operands, ",", &kernels::Operand::name)));
    }
    for (std::size_t i = 0; i < options.types.size(); ++i) {
      DORAJIT_ASSIGN(variant.types[i], parse_type("--types", options.types[i]));
    }
  } else {
    DORAJIT_ASSIGN(const ElementType type, parse_type("--type", options.type));
    ElementType gain =
        type == ElementType::kFloat64 ? ElementType::kFloat64 : ElementType::kFloat32;
    if (!options.gain_type.empty()) {
      DORAJIT_ASSIGN(gain, parse_type("--gain-type", options.gain_type));
    }
    for (std::size_t i = 0; i < op->operands.size(); ++i) {
      const kernels::Operand& operand = op->operands[i];
      variant.types[i] = operand.samples == kernels::Samples::kAroundOne ? gain : type;
    }
  }
  if (!kernels::is_supported(variant)) {
    return fail(
        StatusCode::kUnsupported,
        std::format("no kernel serves {}: f64 goes only with f64, only optional operands may be "
                    "left out, and only a gain can be per row",
                    to_text(variant)));
  }
  return variant;
}

}  // namespace dorajit::cli
