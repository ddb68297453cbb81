#include "bindings/cli/manual/man_page.h"

#include <algorithm>
#include <cctype>
#include <format>
#include <string_view>

#include "bindings/cli/exit_code_meanings.h"

namespace dorajit::cli::manual {
namespace {

// Text that the language takes literally.
std::string literal(std::string_view text) {
  std::string escaped;
  if (text.starts_with('.') || text.starts_with('\'')) escaped = "\\&";
  for (const char letter : text) {
    if (letter == '\\') {
      escaped += "\\e";
    } else if (letter == '-') {
      escaped += "\\-";
    } else {
      escaped += letter;
    }
  }
  return escaped;
}

std::string bold(std::string_view text) { return std::format("\\fB{}\\fR", literal(text)); }
std::string italic(std::string_view text) { return std::format("\\fI{}\\fR", literal(text)); }

std::string sentence(std::string_view text) {
  std::string line = literal(text);
  if (!line.ends_with('.')) line += '.';
  return line;
}

std::string begin_page(const std::string& name, const std::string& description) {
  std::string upper = name;
  std::ranges::transform(upper, upper.begin(), [](unsigned char letter) {
    return static_cast<char>(std::toupper(letter));
  });
  std::string short_description = literal(description);
  if (short_description.ends_with('.')) short_description.pop_back();
  return std::format(
      ".TH {} 1 \"\" \"dorajit {}\" \"User Commands\"\n"
      ".SH NAME\n{} \\- {}\n",
      literal(upper), DORAJIT_VERSION, literal(name), short_description);
}

std::string argument_text(const OptionOutline& argument) {
  std::string text = italic(argument.value);
  if (argument.repeats) text += "...";
  return argument.is_required ? text : std::format("[{}]", text);
}

std::string options_text(const CommandOutline& command) {
  std::string text;
  for (const OptionOutline& positional : command.positionals) {
    text +=
        std::format(".TP\n{}\n{}\n", italic(positional.value), sentence(positional.description));
  }
  for (const OptionOutline& option : command.options) {
    std::string names;
    for (const std::string& name : option.names) {
      names += (names.empty() ? "" : ", ") + bold(name);
    }
    if (!option.value.empty()) names += " " + italic(option.value);
    text += std::format(".TP\n{}\n{}\n", names, sentence(option.description));
  }
  return text;
}

std::string examples_text(const std::vector<std::string>& examples) {
  std::string text;
  for (const std::string& example : examples) text += literal(example) + "\n";
  return std::format(".SH EXAMPLES\n.nf\n{}.fi\n", text);
}

std::string exit_status_text() {
  std::string text = ".SH EXIT STATUS\n";
  for (const ExitCodeMeaning& one : kExitCodes) {
    text += std::format(".TP\n{}\n{}\n", bold(std::to_string(one.code)), sentence(one.meaning));
  }
  return text;
}

std::string reference_to(std::string_view page) { return std::format("{}(1)", bold(page)); }

}  // namespace

ManPage program_page(const CommandOutline& program) {
  std::string text = begin_page(program.name, program.description);
  text += std::format(".SH SYNOPSIS\n{} [{}]... {} [{}]...\n", bold(program.name), italic("OPTION"),
                      italic("COMMAND"), italic("OPTION"));
  text += ".SH DESCRIPTION\n" + sentence(program.description) + "\n";
  text += "Results go to standard output, messages to standard error.\n";
  text += ".SH COMMANDS\n";
  for (const CommandOutline& command : program.subcommands) {
    text += std::format(".TP\n{}\n{}\n", bold(command.name), sentence(command.description));
  }
  text += ".SH OPTIONS\n" + options_text(program);
  text += examples_text(program.examples);
  text += exit_status_text();
  text += ".SH ENVIRONMENT\nThe variables that are in force are listed by\n" +
          bold("dorajit doctor") +
          ".\nAll of them are described in environment.md of the documentation.\n";
  text += ".SH SEE ALSO\n";
  std::string pages;
  for (const CommandOutline& command : program.subcommands) {
    if (!pages.empty()) pages += ",\n";
    pages += reference_to(program.name + "-" + command.name);
  }
  return {.name = program.name, .text = text + pages + "\n"};
}

ManPage command_page(const CommandOutline& program, const CommandOutline& command) {
  const std::string name = program.name + "-" + command.name;
  std::string text = begin_page(name, command.description);
  text += std::format(".SH SYNOPSIS\n{} {}", bold(program.name), bold(command.name));
  if (!command.subcommands.empty()) text += " " + italic("COMMAND");
  text += std::format(" [{}]...", italic("OPTION"));
  for (const OptionOutline& positional : command.positionals) {
    text += " " + argument_text(positional);
  }
  text += "\n.SH DESCRIPTION\n" + sentence(command.description) + "\n";
  if (!command.subcommands.empty()) {
    text += ".SH COMMANDS\n";
    for (const CommandOutline& one : command.subcommands) {
      text += std::format(".TP\n{}\n{}\n", bold(one.name), sentence(one.description));
    }
  }
  text += ".SH OPTIONS\n" + options_text(command);
  text += examples_text(command.examples);
  text += exit_status_text();
  text += ".SH SEE ALSO\n" + reference_to(program.name) + "\n";
  return {.name = name, .text = text};
}

}  // namespace dorajit::cli::manual
