// Writes the manual pages and shell completions of `dorajit` into a folder; run by the build.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "bindings/cli/command_line.h"
#include "bindings/cli/manual/completions.h"
#include "bindings/cli/manual/man_page.h"
#include "bindings/cli/manual/outline.h"

namespace {

using dorajit::cli::manual::CommandOutline;
namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(path.string() + " cannot be written");
}

void write_all(const fs::path& folder) {
  namespace manual = dorajit::cli::manual;
  const dorajit::cli::CommandLine command_line;
  const CommandOutline program = manual::outline_of(command_line.definition());
  const auto write_page = [&](const manual::ManPage& page) {
    write(folder / "man1" / (page.name + ".1"), page.text);
  };
  write_page(manual::program_page(program));
  for (const CommandOutline& command : program.subcommands) {
    write_page(manual::command_page(program, command));
  }
  write(folder / "bash" / program.name, manual::bash_completion(program));
  write(folder / "zsh" / ("_" + program.name), manual::zsh_completion(program));
  write(folder / "fish" / (program.name + ".fish"), manual::fish_completion(program));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: dorajit_manual FOLDER\n", stderr);
    return 2;
  }
  try {
    write_all(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dorajit_manual: %s\n", error.what());
    return 1;
  }
}
