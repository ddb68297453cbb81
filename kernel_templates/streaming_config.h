// The tunables of the templates that stream through matrices, shared by host and device.
//
// Compiled by NVRTC and by any C++20 host compiler, so it includes headers of neither.
#pragma once

#include "arguments.h"
#include "partial_sums.h"

namespace dorajit::kernels {

// The cache policy of loads and stores.
enum class CachePolicy : int {
  kDefault = 0,
  kStreamAll = 1,    // loads and stores are evict-first (CPU: non-temporal stores)
  kStreamLoads = 2,  // only loads are evict-first, so that the output stays cached for its reader
};

// A config never changes a bit of the output; it changes only the speed.
struct StreamingConfig {
  int block_size = 1;        // columns covered by one program
  int num_warps = 1;         // CUDA: warps per program; CPU: worker threads per launch
  int rows_per_program = 1;  // rows covered by one program
  int vector_width = 1;      // elements moved by one access
  int unroll = 1;            // rows whose loads are in flight together
  CachePolicy cache_policy = CachePolicy::kDefault;

  friend constexpr bool operator==(const StreamingConfig&, const StreamingConfig&) = default;
};

constexpr bool is_power_of_two(long long value) { return value > 0 && (value & (value - 1)) == 0; }

// The conditions under which the CUDA templates compile. The templates assert these functions and
// the tuner prunes configs with them, so that the two cannot disagree.
constexpr bool is_valid_for_cuda(const StreamingConfig& config) {
  return config.num_warps >= 1 && config.num_warps <= 32 && config.vector_width <= 16 &&
         is_power_of_two(config.vector_width) && config.rows_per_program >= 1 &&
         config.unroll >= 1 && config.rows_per_program % config.unroll == 0 &&
         config.block_size >= 1 && config.block_size % config.vector_width == 0;
}

// All threads lie side by side along the columns.
constexpr bool is_valid_for_cuda_elementwise(const StreamingConfig& config) {
  return is_valid_for_cuda(config) &&
         config.block_size % (config.num_warps * kThreadsPerWarp * config.vector_width) == 0;
}

// Threads form lanes of columns and lanes of rows; each thread sums whole subtrees.
constexpr bool is_valid_for_cuda_column_sums(const StreamingConfig& config) {
  if (!is_valid_for_cuda(config) || !is_power_of_two(config.num_warps) ||
      !is_power_of_two(config.block_size) || !is_power_of_two(config.rows_per_program) ||
      !is_power_of_two(config.unroll)) {
    return false;
  }
  const int threads = config.num_warps * kThreadsPerWarp;
  const int column_lanes = config.block_size / config.vector_width;
  return column_lanes <= threads && config.rows_per_program >= kMinPartialTerms &&
         config.rows_per_program / (threads / column_lanes) >= kRunLength &&
         config.unroll <= kRunLength;
}

// Each row has a group of lanes of one warp; rows_per_program is the number of groups.
constexpr bool is_valid_for_cuda_row_sums(const StreamingConfig& config) {
  if (!is_valid_for_cuda(config) || !is_power_of_two(config.block_size)) return false;
  const int lanes = config.block_size / config.vector_width;
  return lanes <= kThreadsPerWarp &&
         static_cast<long long>(config.block_size) * config.unroll <= kPartialColumns &&
         config.rows_per_program == config.num_warps * kThreadsPerWarp / lanes;
}

constexpr bool is_valid_for_cpu(const StreamingConfig& config) {
  return config.block_size >= 1 && config.num_warps >= 1 && config.rows_per_program >= 1 &&
         config.vector_width == 1 && config.unroll == 1;
}

constexpr bool is_valid_for_cpu_column_sums(const StreamingConfig& config) {
  return is_valid_for_cpu(config) && is_power_of_two(config.rows_per_program) &&
         config.rows_per_program >= kMinPartialTerms;
}

}  // namespace dorajit::kernels
