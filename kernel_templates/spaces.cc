#include "kernel_templates/spaces.h"

#include <algorithm>

namespace dorajit::kernels {
namespace {

constexpr int kMaxVectorBytes = 16;
constexpr int kMaxVectorWidth = 8;

// A CUDA config in the terms that matter for bandwidth: how many vectors a thread moves per row,
// and how many rows it has in flight.
Config cuda_config(int warps, int vectors, int rows, int unroll, CachePolicy policy, int width) {
  return {.block_size = warps * kThreadsPerWarp * vectors * width,
          .num_warps = warps,
          .rows_per_program = rows,
          .vector_width = width,
          .unroll = unroll,
          .cache_policy = policy};
}

void add_once(std::vector<Config>& space, const Config& config) {
  if (std::ranges::find(space, config) == space.end()) space.push_back(config);
}

void add_cuda_slim(std::vector<Config>& space, int width) {
  using enum CachePolicy;
  for (const Config& config : {
           cuda_config(8, 1, 1, 1, kStreamAll, width),
           cuda_config(4, 1, 1, 1, kDefault, width),
           cuda_config(4, 2, 1, 1, kDefault, width),
           cuda_config(8, 2, 1, 1, kStreamAll, width),
           cuda_config(16, 1, 1, 1, kDefault, width),
           cuda_config(2, 1, 1, 1, kDefault, width),
           cuda_config(8, 1, 2, 2, kDefault, width),
           cuda_config(4, 1, 4, 4, kStreamAll, width),
           cuda_config(4, 1, 4, 2, kStreamLoads, width),
           cuda_config(8, 1, 8, 4, kStreamAll, width),
           cuda_config(4, 1, 16, 4, kStreamAll, width),
       }) {
    add_once(space, config);
  }
}

void add_cuda_grid(std::vector<Config>& space, int width) {
  for (const int warps : {1, 2, 4, 8, 16}) {
    for (const int vectors : {1, 2, 4}) {
      for (const int rows : {1, 2, 4, 8, 16}) {
        for (const int unroll : {1, 2, 4}) {
          if (rows % unroll != 0 || vectors * unroll > 4) continue;
          for (const CachePolicy policy :
               {CachePolicy::kDefault, CachePolicy::kStreamAll, CachePolicy::kStreamLoads}) {
            add_once(space, cuda_config(warps, vectors, rows, unroll, policy, width));
          }
        }
      }
    }
  }
}

Config cpu_config(int block_size, int workers, int rows, CachePolicy policy) {
  return {.block_size = block_size,
          .num_warps = workers,
          .rows_per_program = rows,
          .vector_width = 1,
          .unroll = 1,
          .cache_policy = policy};
}

void add_cpu(std::vector<Config>& space, int processors, std::initializer_list<int> blocks,
             std::initializer_list<int> rows_choices) {
  std::vector<int> worker_choices = {1};
  for (int workers = 2; workers < processors; workers *= 4) worker_choices.push_back(workers);
  if (processors > 1) worker_choices.push_back(processors);
  for (const int block : blocks) {
    for (const int rows : rows_choices) {
      for (const CachePolicy policy : {CachePolicy::kDefault, CachePolicy::kStreamAll}) {
        for (const int workers : worker_choices) {
          add_once(space, cpu_config(block, workers, rows, policy));
        }
      }
    }
  }
}

}  // namespace

int widest_vector(const Variant& variant, DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return 1;
  int largest = 1;
  const OpSpec& s = spec(variant.op);
  for (std::size_t i = 0; i < s.operands.size(); ++i) {
    if (s.operands[i].shape == OperandShape::kMatrix) {
      largest = std::max(largest, size_in_bytes(variant.types[i]));
    }
  }
  return std::min(kMaxVectorWidth, kMaxVectorBytes / largest);
}

Config default_config(const Variant& variant, const SpaceTraits& traits, int vector_width) {
  if (traits.kind == DeviceKind::kCpu) {
    Config config = builtin_cpu_config();
    config.num_warps = traits.processors;
    return config;
  }
  const int width = std::min(vector_width, widest_vector(variant, traits.kind));
  return cuda_config(8, 1, 1, 1, CachePolicy::kDefault, width);
}

std::vector<Config> config_space(const Variant& variant, const SpaceTraits& traits,
                                 int vector_width, SpaceKind kind) {
  std::vector<Config> space = {default_config(variant, traits, vector_width)};
  if (traits.kind == DeviceKind::kCpu) {
    if (kind == SpaceKind::kSlim) {
      add_cpu(space, traits.processors, {4096}, {1, 4});
    } else {
      add_cpu(space, traits.processors, {1024, 4096, 16384}, {1, 4, 16});
    }
    return space;
  }
  const int width = space.front().vector_width;
  if (kind == SpaceKind::kSlim) {
    add_cuda_slim(space, width);
  } else {
    for (int narrower = width; narrower >= std::max(1, width / 2); narrower /= 2) {
      add_cuda_grid(space, narrower);
    }
  }
  return space;
}

Config compiled_part(const Config& config, DeviceKind kind) {
  Config compiled = config;
  if (kind == DeviceKind::kCpu) compiled.num_warps = 1;
  return compiled;
}

}  // namespace dorajit::kernels
