// Manual pages in the man(7) language.
#pragma once

#include <string>

#include "bindings/cli/manual/outline.h"

namespace dorajit::cli::manual {

struct ManPage {
  std::string name;  // "dorajit-tune"
  std::string text;
};

// dorajit(1)
ManPage program_page(const CommandOutline& program);
// dorajit-tune(1) and the like
ManPage command_page(const CommandOutline& program, const CommandOutline& command);

}  // namespace dorajit::cli::manual
