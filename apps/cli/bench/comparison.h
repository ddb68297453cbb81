// Times of a tuned composition and of what it is compared with, from one interleaved run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "autotune/search/measurement.h"
#include "kernel_templates/config.h"
#include "kernel_templates/integer_types.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/sizes.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/engine.h"
#include "runtime/launch/problem.h"

namespace dorajit::cli {

// Every element of every operand crosses the memory bus once.
inline std::int64_t traffic(const kernels::Variant& variant, const kernels::Sizes& sizes) {
  std::int64_t bytes = 0;
  const auto& operands = variant.operation->operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!variant.has(i)) continue;
    bytes += kernels::num_rows(operands[i].shape, sizes) *
             kernels::row_length(operands[i].shape, sizes) *
             kernels::element_size(variant.types[i]);
  }
  return bytes;
}

struct ComparisonPlan {
  kernels::Sizes sizes{};  // bucketed ones are reduced to what memory allows
  double seconds = 1.0;    // for the measurement
  int rounds = 24;
};

struct Comparison {
  kernels::Sizes sizes{};  // measured
  std::int64_t sets = 0;   // of operands, used in turn so that the cache stays cold
  std::int64_t bytes = 0;  // that one composition reads and writes
  kernels::Config default_config{};
  kernels::Config winner_config{};
  autotune::Measurement default_run;
  autotune::Measurement winner;   // is default_run where the configs are the same
  autotune::Measurement unfused;  // four passes
  autotune::Measurement copy;     // of as many bytes, read and written

  [[nodiscard]] double over_default() const { return default_run.median_ns / winner.median_ns; }
  [[nodiscard]] double over_unfused() const { return unfused.median_ns / winner.median_ns; }
  [[nodiscard]] double share_of_copy() const { return copy.median_ns / winner.median_ns; }
  [[nodiscard]] double bytes_per_ns() const {
    return static_cast<double>(bytes) / winner.median_ns;
  }
};

// Scratch memory stays within the engine's Settings::scratch_bytes. Fails when any of the four
// cannot be run.
Result<Comparison> compare(Engine& engine, device::Device& device, const launch::Problem& problem,
                           const kernels::Config& winner, const ComparisonPlan& plan);

}  // namespace dorajit::cli
