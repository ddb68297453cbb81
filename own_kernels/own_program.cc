// What an own kernel is compiled from: the user's source, behind a prelude that names its types and
// parameters, and the entry with its template arguments. Assertions compare the types of the
// entry's parameters with the description: a launch hands over untyped bytes.
#include <algorithm>
#include <format>
#include <functional>
#include <string>

#include "kernel_templates/embedded_sources.h"
#include "kernel_templates/integer_types.h"
#include "own_kernels/included_files.h"
#include "own_kernels/own_operation.h"

namespace dorajit::own_kernels {
namespace {

using kernels::ElementType;

constexpr std::string_view kTypesHeader = "dorajit/types.cuh";
constexpr std::string_view kEmbeddedTypes = "cuda/own_types.cuh";
constexpr std::string_view kFloat8Header = "dorajit/float8.cuh";

constexpr std::string_view kArchitecture = "--gpu-architecture=";

// Options that name files would make code depend on what no hash covers.
constexpr std::string_view kOptions[] = {
    "--std=",
    "-std=",
    "-D",
    "--define-macro=",
    "-U",
    "--fmad=",
    "-fmad=",
    "--ftz=",
    "-ftz=",
    "--prec-div=",
    "-prec-div=",
    "--prec-sqrt=",
    "-prec-sqrt=",
    "--maxrregcount=",
    "-maxrregcount=",
    "--use_fast_math",
    "-use_fast_math",
    "--extra-device-vectorization",
    "-extra-device-vectorization",
    "--restrict",
    "-restrict",
    "--generate-line-info",
    "-lineinfo",
    "--device-int128",
    "-device-int128",
    "--disable-warnings",
    "-w",
    kArchitecture,
};

// "sm_90a"
bool is_architecture(std::string_view text) {
  if (!text.starts_with("sm_")) return false;
  text.remove_prefix(3);
  if (text.ends_with('a') || text.ends_with('f')) text.remove_suffix(1);
  return !text.empty() && text.size() <= 3 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The words of a text, each handed over with its place.
void each_word(std::string_view text,
               const std::function<void(std::size_t at, std::string_view word)>& use) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 0;
    while (at + length < text.size() && is_word_character(text[at + length])) ++length;
    if (length > 0) use(at, text.substr(at, length));
    at += std::max<std::size_t>(length, 1);
  }
}

bool has_word(std::string_view text, std::string_view wanted) {
  bool found = false;
  each_word(text, [&](std::size_t, std::string_view word) { found = found || word == wanted; });
  return found;
}

std::string_view arguments_of_entry(std::string_view entry) {
  const std::size_t open = entry.find('<');
  return open == std::string_view::npos ? std::string_view() : entry.substr(open);
}

std::string_view name_of_entry(std::string_view entry) {
  std::string_view name = entry.substr(0, entry.find('<'));
  const std::size_t colons = name.rfind("::");
  if (colons != std::string_view::npos) name.remove_prefix(colons + 2);
  return name.substr(0, name.find_last_not_of(' ') + 1);
}

// The words before the parentheses of what is declared __global__, as far as words tell.
std::string kernels_of(std::string_view source) {
  std::string names;
  bool is_declared = false;
  bool is_bounds = false;
  each_word(source, [&](std::size_t at, std::string_view word) {
    if (word == "__global__") is_declared = true;
    const std::size_t next = source.find_first_not_of(" \t\n", at + word.size());
    const bool is_called = next != std::string_view::npos && source[next] == '(';
    is_bounds = word == "__launch_bounds__";
    if (!is_declared || !is_called || is_bounds) return;
    names += std::format("{}`{}`", names.empty() ? "" : ", ", word);
    is_declared = false;
  });
  return names;
}

std::string_view cuda_name(const OwnOperation& own, ElementType type) {
  const bool is_native = own.given.has_native_types;
  if (const auto* const integer = kernels::as_integer(type)) return integer->cuda;
  if (type == kernels::kFloat8E4m3) return is_native ? "__nv_fp8_e4m3" : "dorajit::float8_e4m3fn";
  if (type == kernels::kFloat8E5m2) return is_native ? "__nv_fp8_e5m2" : "dorajit::float8_e5m2";
  switch (type) {
    case ElementType::kBfloat16:
      return is_native ? "__nv_bfloat16" : "dorajit::bfloat16";
    case ElementType::kFloat16:
      return is_native ? "__half" : "dorajit::float16";
    case ElementType::kFloat64:
      return "double";
    default:
      return "float";
  }
}

// The element type that a name of the description stands for in a variant.
ElementType type_of(const OwnOperation& own, const kernels::Variant& variant,
                    std::string_view name) {
  std::size_t operand = 0;
  for (const Argument& argument : own.given.arguments) {
    if (!argument.is_tensor()) continue;
    if (argument.type == name && variant.has(operand)) return variant.types[operand];
    ++operand;
  }
  // Only tensors that the call leaves out have it.
  const auto choice = std::ranges::find(own.given.types, name, &TypeChoice::name);
  return choice != own.given.types.end() ? choice->types.front() : ElementType::kFloat32;
}

// Whether a type is one of others. As of C++11, which --std= may ask for.
constexpr std::string_view kOneOf =
    "template <class dorajit_type, class... dorajit_types>\n"
    "struct dorajit_one_of { enum { dorajit_value = 0 }; };\n"
    "template <class dorajit_type, class... dorajit_types>\n"
    "struct dorajit_one_of<dorajit_type, dorajit_type, dorajit_types...> {\n"
    "  enum { dorajit_value = 1 };\n"
    "};\n"
    "template <class dorajit_type, class dorajit_other, class... dorajit_types>\n"
    "struct dorajit_one_of<dorajit_type, dorajit_other, dorajit_types...>\n"
    "    : dorajit_one_of<dorajit_type, dorajit_types...> {};\n";

// The types of CUDA C++ that a parameter may have, the documented one first; the others hold the
// same values in the same bits.
std::vector<std::string> types_of_parameter(const OwnOperation& own,
                                            const kernels::Variant& variant,
                                            const Argument& argument) {
  if (argument.is_tensor_map()) return {"CUtensorMap"};
  const ElementType element =
      parse_type_name(argument.type).value_or(type_of(own, variant, argument.type));
  std::vector<std::string_view> names = {cuda_name(own, element)};
  if (element == ElementType::kBfloat16) names.emplace_back("struct __nv_bfloat16");
  if (element == ElementType::kFloat16) names.emplace_back("struct __half");
  if (element == kernels::kFloat8E4m3) names.emplace_back("struct __nv_fp8_e4m3");
  if (element == kernels::kFloat8E5m2) names.emplace_back("struct __nv_fp8_e5m2");
  if (kernels::is_float8(element)) names.emplace_back("unsigned char");
  if (names.front() == "long long") names.emplace_back("long");
  if (names.front() == "unsigned long long") names.emplace_back("unsigned long");
  if (names.front() == "signed char") names.emplace_back("char");
  // A size is never negative.
  if (argument.is_size() && names.front() == "int") names.emplace_back("unsigned");
  if (argument.is_size() && names.front() == "long long") {
    names.insert(names.end(), {"unsigned long long", "unsigned long"});
  }
  if (argument.is_scalar()) return {names.begin(), names.end()};
  const std::string_view access = argument.kind == Argument::Kind::kIn ? "const " : "";
  std::vector<std::string> types;
  for (const std::string_view name : names) {
    types.push_back(std::format("{}{}*", access, name));
    types.push_back(std::format("{}volatile {}*", access, name));
  }
  return types;
}

// A template `dorajit_compared` of the entry's type. Its static assertions name what differs, and
// the compiler's note to them has the type in the code.
std::string comparison(const OwnOperation& own, const kernels::Variant& variant) {
  const Description& description = own.given;
  std::string text = std::format("#line 1 \"the description of {}\"\n", description.name);
  text += kOneOf;
  std::string names;
  std::string types;
  std::string bases;
  for (const Argument& argument : description.arguments) {
    const std::vector<std::string> served = types_of_parameter(own, variant, argument);
    std::string list;
    for (const std::string& type : served) list += ", " + type;
    text += std::format(
        "template <class dorajit_type_in_source> struct dorajit_argument_{0} {{ static_assert("
        "dorajit_one_of<dorajit_type_in_source{1}>::dorajit_value, \"the parameter '{0}' must be "
        "of type "
        "'{2}', as it is described\"); }};\n",
        argument.name, list, served.front());
    const std::string_view comma = names.empty() ? "" : ", ";
    names += std::format("{}class dorajit_type_{}", comma, argument.name);
    types += std::format("{}dorajit_type_{}", comma, argument.name);
    bases += std::format("{0}dorajit_argument_{1}<dorajit_type_{1}>", comma, argument.name);
  }
  text += std::format(
      "template <class dorajit_entry> struct dorajit_compared {{ "
      "static_assert(sizeof(dorajit_entry) "
      "== 0, \"the entry must have {} parameters, as it is described\"); }};\n"
      "template <{}> struct dorajit_compared<void (*)({})> : {} {{ enum {{ dorajit_value = 1 }}; "
      "}};\n",
      description.arguments.size(), names, types, bases);
  return text;
}

// CUtensorMap, of cuda.h if the source has it.
std::string declared_tensor_map(const Description& description) {
  constexpr std::string_view kHeader = "cuda.h";
  const bool has_header =
      std::ranges::contains(description.included, kHeader, &IncludedFile::name) ||
      std::ranges::contains(description.headers, kHeader, &kernels::SourceFile::name);
  return has_header ? std::format("#include <{}>\n", kHeader)
                    : "struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };\n"
                      "typedef struct CUtensorMap_st CUtensorMap;\n";
}

// The entry with the values and types that its template arguments name.
std::string instantiated_entry(const OwnOperation& own, const kernels::Variant& variant,
                               const kernels::Config& config, std::string_view given) {
  const std::string_view arguments = arguments_of_entry(given);
  std::string entry(given.substr(0, given.size() - arguments.size()));
  std::size_t done = 0;
  each_word(arguments, [&](std::size_t at, std::string_view word) {
    entry += arguments.substr(done, at - done);
    done = at + word.size();
    for (const kernels::Tunable& tunable : config.tunables()) {
      if (tunable.mark.text() == word) return void(entry += std::to_string(tunable.value));
    }
    const bool is_type = std::ranges::contains(own.given.types, word, &TypeChoice::name);
    entry += is_type ? cuda_name(own, type_of(own, variant, word)) : word;
  });
  entry += arguments.substr(done);
  return entry;
}

}  // namespace

bool has_float8(const Description& description) {
  return !description.has_native_types && (has_type(description, kernels::kFloat8E4m3) ||
                                           has_type(description, kernels::kFloat8E5m2));
}

kernels::Program own_program(const kernels::Variant& variant, const kernels::Config& config) {
  const OwnOperation& own = OwnOperation::of(variant);
  const Description& description = own.given;
  // Of all launches: what one of them names is no macro.
  std::string arguments;
  for (const Launch& launch : description.launches) {
    arguments += arguments_of_entry(launch.entry);
  }
  std::string prelude = std::format("#include \"{}\"\n", kTypesHeader);
  if (has_float8(description)) prelude += std::format("#include \"{}\"\n", kFloat8Header);
  for (const std::string_view header : headers_of_types(description)) {
    prelude += std::format("#include <{}>\n", header);
  }
  if (!own.tensor_maps.empty()) prelude += declared_tensor_map(description);
  for (const TypeChoice& choice : description.types) {
    if (has_word(arguments, choice.name)) continue;
    prelude += std::format("using {} = {};\n", choice.name,
                           cuda_name(own, type_of(own, variant, choice.name)));
  }
  for (const kernels::Tunable& tunable : config.tunables()) {
    if (has_word(arguments, tunable.mark.text())) continue;
    prelude += std::format("#define {} {}\n", tunable.mark.text(), tunable.value);
  }
  prelude += comparison(own, variant);
  prelude += std::format("#line 1 \"{}\"\n", description.source.name);

  std::string entries;
  // Valid in any scope, so that a source without its last brace is refused for that alone. The
  // source may have macros of these names.
  std::string check = "\n#undef static_assert\n#undef decltype\n";
  for (const Launch& launch : description.launches) {
    const std::string entry = instantiated_entry(own, variant, config, launch.entry);
    if (!entries.empty()) entries += kernels::Program::kBetweenEntries;
    entries += entry;
    check += std::format("static_assert(dorajit_compared<decltype(&{})>::dorajit_value, \"\");\n",
                         entry);
  }
  kernels::Program program{
      .source = {description.source.name, prelude + description.source.text + check},
      .headers = description.headers,
      .options = description.options,
      .entry = std::move(entries)};
  const kernels::EmbeddedFile* const types = kernels::find_embedded(kEmbeddedTypes);
  program.headers.push_back({std::string(kTypesHeader), std::string(types->text)});
  if (has_float8(description)) {
    const kernels::EmbeddedFile* const float8 = kernels::find_embedded(kEmbeddedFloat8);
    program.headers.push_back({std::string(kFloat8Header), std::string(float8->text)});
  }
  for (const IncludedFile& file : description.included) {
    program.headers.push_back({file.name, file.text});
  }
  const auto is_standard = [](std::string_view option) {
    return option.starts_with("--std=") || option.starts_with("-std=");
  };
  if (std::ranges::none_of(description.options, is_standard)) {
    program.options->insert(program.options->begin(), "--std=c++20");
  }
  // CUTLASS has lambdas and functions without __device__.
  program.options->push_back("--device-as-default-execution-space");
  return program;
}

Status check_program(const Description& description) {
  const auto is_entry_character = [](char c) {
    return is_word_character(c) || std::string_view(":<>, ()+-*/").contains(c);
  };
  for (const Launch& launch : description.launches) {
    const std::string& entry = launch.entry;
    const bool is_balanced = arguments_of_entry(entry).empty() || entry.ends_with('>');
    if (entry.size() > 500 || !std::ranges::all_of(entry, is_entry_character) || !is_balanced ||
        !is_name(name_of_entry(entry))) {
      return refuse_description(std::format(
          "\"entry\" is \"{}\"; write it as \"name\" or \"name<BLOCK, T>\"", entry.substr(0, 500)));
    }
  }
  const auto is_file_name = [](const std::string& name) {
    return !name.empty() && name.size() <= 200 && std::ranges::none_of(name, [](char c) {
      return static_cast<unsigned char>(c) < ' ' || c == '"' || c == '\\';
    });
  };
  if (!is_file_name(description.source.name)) {
    return refuse_description(
        "\"file\" is a name without quotes, backslashes and control characters");
  }
  std::string everything = description.source.text;
  for (const auto& [name, text] : description.headers) {
    if (!is_file_name(name)) {
      return refuse_description(
          "\"headers\" has a name with quotes, backslashes or control characters");
    }
    everything += "\n" + text;
  }
  if (everything.contains('\0'))
    return refuse_description("\"source\" or a header has a zero byte");
  for (const Launch& launch : description.launches) {
    const std::string_view wanted = name_of_entry(launch.entry);
    const auto is_included = [&](const IncludedFile& file) { return has_word(file.text, wanted); };
    if (has_word(everything, wanted) || std::ranges::any_of(description.included, is_included)) {
      continue;
    }
    const std::string there = kernels_of(everything);
    return refuse_description(
        std::format("the source has no kernel `{}`; it has {}", wanted,
                    there.empty() ? "none that is declared __global__" : there));
  }
  for (const std::string& option : description.options) {
    const bool is_served =
        !option.contains('\0') && std::ranges::any_of(kOptions, [&](std::string_view known) {
          const bool takes_more = known.ends_with('=') || known == "-D" || known == "-U";
          // A bare -D would take the next option for its name.
          if (known == kArchitecture && option.starts_with(known)) {
            return is_architecture(std::string_view(option).substr(known.size()));
          }
          return takes_more ? option.size() > known.size() && option.starts_with(known)
                            : option == known;
        });
    if (!is_served) {
      return refuse_description(std::format(
          "\"options\" has \"{}\", which is not served; headers go into \"headers\", and options "
          "that name files would make code depend on what no key covers",
          option.substr(0, 200)));
    }
  }
  return {};
}

}  // namespace dorajit::own_kernels
