// dorajit tune
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/cli/command.h"
#include "bindings/cli/shapes.h"
#include "bindings/cli/variant_options.h"

namespace dorajit::cli {

// Finds the fastest config of problems and keeps it.
class TuneCommand final : public Command {
 public:
  CLI::App* declare(CLI::App& app) override;
  Result<ExitCode> run(const Invocation& invocation) override;

 private:
  [[nodiscard]] Result<std::vector<Shape>> wanted_shapes() const;

  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::vector<std::string> shapes_;
  VariantOptions variant_;
  bool force_ = false;
};

}  // namespace dorajit::cli
