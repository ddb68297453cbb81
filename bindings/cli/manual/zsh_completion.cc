#include <format>
#include <string_view>

#include "bindings/cli/manual/completions.h"

namespace dorajit::cli::manual {
namespace {

// Inside single quotes, in a specification of _arguments or _describe.
std::string single_quoted(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '\'') {
      escaped += "'\\''";
    } else {
      if (letter == '[' || letter == ']' || letter == ':' || letter == '\\') escaped += '\\';
      escaped += letter;
    }
  }
  return escaped;
}

std::string value_action(const std::string& value) {
  if (is_file(value)) return "_files";
  if (is_folder(value)) return "_files -/";
  const std::string words = joined(words_of(value));
  return words.empty() ? " " : std::format("({})", words);
}

std::string arguments_text(const CommandOutline& command, const std::string& indent) {
  std::string text;
  for (const OptionOutline& option : command.options) {
    for (const std::string& name : option.names) {
      const bool is_long = name.starts_with("--");
      text += std::format("{}'{}{}{}[{}]", indent, option.repeats ? "*" : "", name,
                          option.value.empty() ? "" : (is_long ? "=" : "+"),
                          single_quoted(option.description));
      if (!option.value.empty()) {
        text += std::format(":{}:{}", single_quoted(option.value), value_action(option.value));
      }
      text += "' \\\n";
    }
  }
  for (const OptionOutline& positional : command.positionals) {
    text += std::format("{}'{}:{}:{}' \\\n", indent, positional.repeats ? "*" : "",
                        single_quoted(positional.value), value_action(positional.value));
  }
  return text;
}

std::string function_name(const std::string& path) {
  std::string name = "_" + path;
  for (char& letter : name) {
    if (letter == ' ' || letter == '-') letter = '_';
  }
  return name;
}

std::string functions_text(const CommandOutline& command, const std::string& path) {
  if (command.subcommands.empty()) {
    return std::format("{}() {{\n  _arguments -s -S \\\n{}    && return 0\n}}\n\n",
                       function_name(path), arguments_text(command, "    "));
  }
  std::string text;
  std::string names;
  std::string cases;
  for (const CommandOutline& one : command.subcommands) {
    const std::string longer = path + " " + one.name;
    text += functions_text(one, longer);
    names += std::format("    '{}:{}'\n", one.name, single_quoted(one.description));
    cases += std::format("        {}) {} ;;\n", one.name, function_name(longer));
  }
  return text + std::format(R"({}() {{
  local context state state_descr line
  typeset -A opt_args
  local -a commands=(
{}  )
  _arguments -s -S -C \
{}    '1:command:->command' \
    '*::arguments:->arguments' && return 0
  case $state in
    command) _describe command commands ;;
    arguments)
      case $line[1] in
{}      esac ;;
  esac
}}

)",
                            function_name(path), names, arguments_text(command, "    "), cases);
}

}  // namespace

std::string zsh_completion(const CommandOutline& program) {
  const std::string name = function_name(program.name);
  return std::format(
      "#compdef {}\n# zsh completion for {}, generated from the program's own options\n\n{}{} "
      "\"$@\"\n",
      program.name, program.name, functions_text(program, program.name), name);
}

}  // namespace dorajit::cli::manual
