// dorajit merge
#pragma once

#include <string>
#include <vector>

#include "bindings/cli/command.h"

namespace dorajit::cli {

// Makes one file of trials out of several, without the tuning database.
class MergeCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  std::string out_;
  std::vector<std::string> inputs_;
  bool partial_ = false;
};

}  // namespace dorajit::cli
