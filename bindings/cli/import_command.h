// dorajit import
#pragma once

#include <string>
#include <vector>

#include "bindings/cli/command.h"

namespace dorajit::cli {

// Adds trials from files to the tuning database, and takes them out again.
class ImportCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  [[nodiscard]] Result<ExitCode> import_files(const Invocation& invocation) const;
  [[nodiscard]] Result<ExitCode> ship(const Invocation& invocation) const;
  [[nodiscard]] Result<ExitCode> undo(const Invocation& invocation) const;
  [[nodiscard]] static Result<ExitCode> list(const Invocation& invocation);

  std::vector<std::string> files_;
  std::string folder_;
  std::string undone_;  // id of an import
  bool list_ = false;
  bool partial_ = false;
};

}  // namespace dorajit::cli
