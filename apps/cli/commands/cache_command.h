// dorajit cache
#pragma once

#include "apps/cli/commands/command.h"

namespace dorajit::cli {

// Where the cache folder is.
class CacheCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;
};

}  // namespace dorajit::cli
