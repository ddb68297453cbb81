// Completion of commands, options and their values in shells.
#pragma once

#include <string>

#include "bindings/cli/manual/outline.h"

namespace dorajit::cli::manual {

// For share/bash-completion/completions/dorajit; needs nothing but bash.
std::string bash_completion(const CommandOutline& program);
// For share/zsh/site-functions/_dorajit
std::string zsh_completion(const CommandOutline& program);
// For share/fish/vendor_completions.d/dorajit.fish
std::string fish_completion(const CommandOutline& program);

}  // namespace dorajit::cli::manual
