#include <format>
#include <string_view>

#include "bindings/cli/manual/completions.h"

namespace dorajit::cli::manual {
namespace {

std::string single_quoted(std::string_view text) {
  std::string escaped = "'";
  for (const char letter : text) {
    if (letter == '\'' || letter == '\\') escaped += '\\';
    escaped += letter;
  }
  return escaped + "'";
}

std::string value_action(const std::string& value) {
  if (is_file(value)) return " -r -F";
  if (is_folder(value)) return " -x -a '(__fish_complete_directories)'";
  const std::string words = joined(words_of(value));
  return words.empty() ? " -x" : std::format(" -x -a '{}'", words);
}

void add_command(const CommandOutline& command, const std::string& program,
                 const std::string& condition, std::string& text) {
  const std::string begin = std::format("complete -c {} -n {}", program, single_quoted(condition));
  for (const OptionOutline& option : command.options) {
    text += begin;
    for (const std::string& name : option.names) {
      text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    if (!option.value.empty()) text += value_action(option.value);
    text += std::format(" -d {}\n", single_quoted(option.description));
  }
  for (const OptionOutline& positional : command.positionals) {
    if (is_file(positional.value)) text += begin + " -F\n";
  }
  if (command.subcommands.empty()) return;
  std::string names;
  for (const CommandOutline& one : command.subcommands) names += " " + one.name;
  for (const CommandOutline& one : command.subcommands) {
    text += std::format(
        "complete -c {} -n {} -a {} -d {}\n", program,
        single_quoted(std::format("{}; and not __fish_seen_subcommand_from{}", condition, names)),
        one.name, single_quoted(one.description));
  }
}

}  // namespace

std::string fish_completion(const CommandOutline& program) {
  const std::string& name = program.name;
  std::string text = std::format(
      "# fish completion for {}, generated from the program's own options\ncomplete -c {} -f\n",
      name, name);
  std::string names;
  for (const CommandOutline& command : program.subcommands) names += " " + command.name;
  CommandOutline alone = program;
  alone.subcommands.clear();
  add_command(alone, name, "not __fish_seen_subcommand_from" + names, text);
  for (const CommandOutline& command : program.subcommands) {
    text += std::format("complete -c {} -n {} -a {} -d {}\n", name,
                        single_quoted("not __fish_seen_subcommand_from" + names), command.name,
                        single_quoted(command.description));
    add_command(command, name, "__fish_seen_subcommand_from " + command.name, text);
  }
  return text;
}

}  // namespace dorajit::cli::manual
