// dorajit cache
#pragma once

#include "bindings/cli/command.h"

namespace dorajit::cli {

// Where the cache folder is, and its winners derived anew.
class CacheCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  CLI::App* path_ = nullptr;
  CLI::App* rebuild_ = nullptr;
};

}  // namespace dorajit::cli
