#include "bindings/cli/manual/outline.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <sstream>

namespace dorajit::cli::manual {
namespace {

// The indented lines below "Example:".
std::vector<std::string> examples_of(const std::string& footer) {
  constexpr std::string_view kIndent = "  ";
  std::vector<std::string> examples;
  std::istringstream lines(footer);
  bool is_example = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kIndent)) {
      is_example = line == "Example:";
    } else if (is_example) {
      examples.push_back(line.substr(kIndent.size()));
    }
  }
  return examples;
}

OptionOutline outline_of(const CLI::Option& option) {
  OptionOutline outline{.names = {},
                        .value = option.get_option_text(),
                        .description = option.get_description(),
                        .is_required = option.get_required(),
                        .repeats = option.get_items_expected_max() > 1};
  if (option.get_positional()) {
    outline.names = {option.get_name(true)};
    if (outline.value.empty()) outline.value = outline.names.front();
  } else {
    for (const std::string& name : option.get_snames()) outline.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) outline.names.push_back("--" + name);
    if (outline.value.empty() && option.get_items_expected_max() > 0) outline.value = "VALUE";
  }
  return outline;
}

}  // namespace

CommandOutline outline_of(const CLI::App& app) {
  CommandOutline outline{.name = app.get_name(),
                         .description = app.get_description(),
                         .options = {},
                         .positionals = {},
                         .examples = examples_of(app.get_footer()),
                         .subcommands = {}};
  for (const CLI::Option* option : app.get_options()) {
    auto& list = option->get_positional() ? outline.positionals : outline.options;
    list.push_back(outline_of(*option));
  }
  for (const CLI::App* subcommand : app.get_subcommands({})) {
    outline.subcommands.push_back(outline_of(*subcommand));
  }
  return outline;
}

std::vector<std::string> words_of(const std::string& value) {
  std::vector<std::string> words;
  if (!value.contains('|')) return words;
  std::istringstream parts(value);
  for (std::string word; std::getline(parts, word, '|');) {
    const bool varies =
        std::ranges::any_of(word, [](unsigned char letter) { return std::isupper(letter) != 0; });
    if (!varies) words.push_back(word);
  }
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

bool is_file(const std::string& value) {
  return value == "FILE" || value == "IN" || value == "OUT";
}

bool is_folder(const std::string& value) { return value == "DIR" || value == "FOLDER"; }

}  // namespace dorajit::cli::manual
