// dorajit bundle-db
#pragma once

#include <string>
#include <vector>

#include "bindings/cli/command.h"

namespace dorajit::cli {

// Makes the databases that an installation brings, one per device model.
class BundleDbCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  std::string folder_ = ".";
  std::vector<std::string> inputs_;
  std::string device_name_;
  bool all_ = false;
  bool sqlite_ = false;
  bool partial_ = false;
};

}  // namespace dorajit::cli
