#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <format>
#include <string>
#include <system_error>
#include <vector>

#include "apps/cli/commands/commands.h"

namespace dorajit::cli {
namespace {

using Words = std::vector<std::string>;

// Becomes the program, so that launchers and schedulers see its process and signals.
Result<ExitCode> become_program(const Invocation& invocation, Words words) {
  ::setenv("DORAJIT_PATCH_PEFT", "1", /*overwrite=*/0);
  if (!invocation.settings.cache_dir.empty()) {
    ::setenv("DORAJIT_CACHE_DIR", invocation.settings.cache_dir.c_str(), /*overwrite=*/1);
  }
  // run_program ignores them, and a program inherits that.
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  return fail(StatusCode::kIoError, std::format("cannot run {}: {}", words.front(),
                                                std::generic_category().message(errno)));
}

}  // namespace

void declare_run(CLI::App& app, std::vector<Command>& commands) {
  const auto [running, words] = add_command<Words>(
      app, commands, "run", "Run a program whose PEFT is patched (DORAJIT_PATCH_PEFT)",
      "dorajit run -- torchrun --nproc-per-node 8 train.py", become_program);
  running.add_option("program", words, "The program and its arguments, after `--`")
      ->required()
      ->option_text("-- PROGRAM [ARGUMENT...]");
}

}  // namespace dorajit::cli
