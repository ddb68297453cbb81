#include <format>
#include <set>
#include <string_view>

#include "bindings/cli/manual/completions.h"

namespace dorajit::cli::manual {
namespace {

// What the script knows of each command; `path` is "" for the program, then "cache", "cache path".
struct Cases {
  std::set<std::string> with_value;  // every name of an option that takes one
  std::string descents;              // words that lead to a command
  std::string values;                // what completes the value of an option
  std::string words;                 // what completes anything else
};

std::string value_action(const std::string& value) {
  if (is_file(value)) return "files=-f";
  if (is_folder(value)) return "files=-d";
  return std::format("words='{}'", joined(words_of(value)));
}

void add_command(const CommandOutline& command, const std::string& path, Cases& cases) {
  std::vector<std::string> words;
  for (const CommandOutline& one : command.subcommands) {
    const std::string longer = path.empty() ? one.name : path + " " + one.name;
    cases.descents += std::format("      '{}:{}') command='{}' ;;\n", path, one.name, longer);
    words.push_back(one.name);
    add_command(one, longer, cases);
  }
  for (const OptionOutline& option : command.options) {
    for (const std::string& name : option.names) {
      words.push_back(name);
      if (option.value.empty()) continue;
      cases.with_value.insert(name);
      cases.values += std::format("    '{}:{}') {} ;;\n", path, name, value_action(option.value));
    }
  }
  std::string files;
  for (const OptionOutline& positional : command.positionals) {
    if (is_file(positional.value)) files = " files=-f";
  }
  cases.words += std::format("      '{}') words='{}'{} ;;\n", path, joined(words), files);
}

constexpr std::string_view kScript =
    R"(# bash completion for dorajit, generated from the program's own options
_dorajit() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before= command= words= files= word i
  COMPREPLY=()
  ((COMP_CWORD > 0)) && before=${{COMP_WORDS[COMP_CWORD - 1]}}
  # --option=VALUE comes as three words
  if [[ $current == = ]]; then
    current=
  elif [[ $before == = ]]; then
    before=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${{COMP_WORDS[i]}}
    case $word in
      {}) [[ ${{COMP_WORDS[i + 1]}} == = ]] && ((++i)); ((++i)); continue ;;
    esac
    case $command:$word in
{}    esac
  done
  case $command:$before in
{}    *) case $command in
{}    esac ;;
  esac
  [[ $current != -* ]] || files=
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  fi
  if [[ -n $files ]]; then
    compopt -o filenames 2>/dev/null
    local -a names
    mapfile -t names < <(compgen "$files" -- "$current")
    COMPREPLY+=("${{names[@]}}")
  fi
}}
complete -F _dorajit dorajit
)";

}  // namespace

std::string bash_completion(const CommandOutline& program) {
  Cases cases;
  add_command(program, "", cases);
  std::string with_value;
  for (const std::string& name : cases.with_value) {
    with_value += (with_value.empty() ? "" : " | ") + name;
  }
  return std::format(kScript, with_value, cases.descents, cases.values, cases.words);
}

}  // namespace dorajit::cli::manual
