// What the command line understands, as plain data: what manual pages and completions are made of.
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace dorajit::cli::manual {

struct OptionOutline {
  std::vector<std::string> names;  // "-h", "--help"; of a positional its name alone
  std::string value;               // what stands for its value, "FILE"; empty for a flag
  std::string description;
  bool is_required = false;
  bool repeats = false;
};

struct CommandOutline {
  std::string name;
  std::string description;
  std::vector<OptionOutline> options;
  std::vector<OptionOutline> positionals;
  std::vector<std::string> examples;  // command lines
  std::vector<CommandOutline> subcommands;
};

CommandOutline outline_of(const CLI::App& app);

// The words that a value may be, where what stands for it lists them: "cpu|cuda|cuda:N" has the
// words cpu and cuda, as upper case stands for what varies.
std::vector<std::string> words_of(const std::string& value);
// With a space between them.
std::string joined(const std::vector<std::string>& words);
bool is_file(const std::string& value);
bool is_folder(const std::string& value);

}  // namespace dorajit::cli::manual
