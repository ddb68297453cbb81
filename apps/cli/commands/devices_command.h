// dorajit devices
#pragma once

#include "apps/cli/commands/command.h"

namespace dorajit::cli {

// Lists the devices of this machine.
class DevicesCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;
};

}  // namespace dorajit::cli
