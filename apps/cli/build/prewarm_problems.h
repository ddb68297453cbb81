// The problems and config spaces that `dorajit prewarm` compiles for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/cli/options/problem_options.h"
#include "runtime/launch/problem.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace dorajit::cli {

// The configs of a variant for data that is aligned to so many elements.
struct VariantSpace {
  kernels::Variant variant;
  int vector_width = 1;
};

struct PrewarmOptions {
  std::vector<std::string> shapes;
  std::string file;  // of problems, one a line
  OwnKernelOptions own_kernel;
  std::vector<std::string> ops;
  bool all_alignments = false;  // also for data that is aligned to an element only
  // Without its op; no type: bf16.
  VariantOptions variant{.op = {}, .type = {}, .gain_type = {}, .types = {}};
};

// Declares --shape, --from, --op, --all-alignments and what add_own_kernel_options() and
// add_variant_options() declare.
void add_prewarm_options(CLI::App& app, PrewarmOptions& options);

// The problems that the options name, for any kind of device.
class PrewarmProblems {
 public:
  // Does not read a file of problems. kInvalidArgument unless the options name one source of
  // problems, or operations alone.
  static Result<PrewarmProblems> read(const PrewarmOptions& options);

  // Without repeats; empty where the options name operations alone. kInvalidArgument for an own
  // kernel on a CPU.
  [[nodiscard]] Result<std::vector<launch::Problem>> on(kernels::DeviceKind kind) const;
  // The spaces of operations that are named alone; else empty.
  [[nodiscard]] std::vector<VariantSpace> spaces(kernels::DeviceKind kind) const;

 private:
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<kernels::Variant> variants_;
  std::string file_;
  std::vector<launch::Problem> of_own_kernel_;
  bool all_alignments_ = false;
};

}  // namespace dorajit::cli
