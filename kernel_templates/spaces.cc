#include "kernel_templates/spaces.h"

#include <algorithm>
#include <initializer_list>

#include "kernel_templates/builtin_cpu.h"

namespace dorajit::kernels {
namespace {

using enum CachePolicy;

constexpr int kMaxVectorBytes = 16;
constexpr int kMaxVectorWidth = 8;

// A CUDA config with `lanes` vectors side by side along the columns.
Config cuda_config(int warps, int lanes, int rows, int unroll, CachePolicy policy, int width) {
  return {.block_size = lanes * width,
          .num_warps = warps,
          .rows_per_program = rows,
          .vector_width = width,
          .unroll = unroll,
          .cache_policy = policy};
}

// In the terms that matter for bandwidth: how many vectors a thread moves per row, and how many
// rows it has in flight.
Config elementwise_config(int warps, int vectors, int rows, int unroll, CachePolicy policy,
                          int width) {
  return cuda_config(warps, warps * kThreadsPerWarp * vectors, rows, unroll, policy, width);
}

// Threads side by side along the columns, the rest along the rows.
Config column_sums_config(int warps, int column_lanes, int rows, int unroll, CachePolicy policy,
                          int width) {
  return cuda_config(warps, column_lanes, rows, unroll, policy, width);
}

// Lanes per row, and passes over the columns in flight.
Config row_sums_config(int warps, int lanes, int unroll, CachePolicy policy, int width) {
  return cuda_config(warps, lanes, warps * kThreadsPerWarp / lanes, unroll, policy, width);
}

int half_width(int width) { return width > 1 ? width / 2 : 1; }

void add_once(std::vector<Config>& space, const Config& config) {
  if (std::ranges::find(space, config) == space.end()) space.push_back(config);
}

// What was fastest, or close to it, for some size on an H200 when every config of the grid was
// measured (docs/performance.md), and what differs most from that for other GPUs.
void add_elementwise_slim(std::vector<Config>& space, int width) {
  const int half = half_width(width);
  for (const Config& config : {
           elementwise_config(1, 1, 1, 1, kDefault, half),
           elementwise_config(2, 1, 1, 1, kDefault, width),
           elementwise_config(2, 1, 1, 1, kStreamLoads, width),
           elementwise_config(4, 1, 1, 1, kStreamAll, half),
           elementwise_config(4, 2, 1, 1, kDefault, half),
           elementwise_config(8, 1, 1, 1, kDefault, width),
           elementwise_config(16, 1, 1, 1, kDefault, width),
           elementwise_config(1, 2, 2, 2, kStreamLoads, width),
           elementwise_config(2, 1, 2, 2, kDefault, width),
           elementwise_config(4, 1, 2, 2, kStreamLoads, width),
           elementwise_config(8, 1, 2, 2, kDefault, width),
       }) {
    add_once(space, config);
  }
}

void add_elementwise_grid(std::vector<Config>& space, int width) {
  for (const int warps : {1, 2, 4, 8, 16}) {
    for (const int vectors : {1, 2, 4}) {
      for (const int rows : {1, 2, 4, 8, 16}) {
        for (const int unroll : {1, 2, 4}) {
          if (rows % unroll != 0 || vectors * unroll > 4) continue;
          for (const CachePolicy policy : {kDefault, kStreamAll, kStreamLoads}) {
            add_once(space, elementwise_config(warps, vectors, rows, unroll, policy, width));
          }
        }
      }
    }
  }
}

void add_column_sums_slim(std::vector<Config>& space, int width) {
  const int half = half_width(width);
  for (const Config& config : {
           column_sums_config(16, 16, 256, 8, kDefault, width),
           column_sums_config(8, 8, 256, 4, kDefault, width),
           column_sums_config(8, 8, 256, 8, kStreamLoads, width),
           column_sums_config(4, 4, 256, 8, kDefault, width),
           column_sums_config(8, 4, 512, 8, kDefault, width),
           column_sums_config(16, 16, 512, 4, kDefault, width),
           column_sums_config(8, 16, 2048, 8, kDefault, width),
           column_sums_config(8, 32, 2048, 8, kDefault, width),
           column_sums_config(8, 16, 256, 2, kDefault, width),
           column_sums_config(8, 32, 2048, 4, kDefault, half),
           column_sums_config(16, 64, 2048, 4, kDefault, half),
       }) {
    add_once(space, config);
  }
}

void add_column_sums_grid(std::vector<Config>& space, int width) {
  for (const int warps : {2, 4, 8, 16}) {
    for (const int lanes : {4, 8, 16, 32, 64}) {
      for (const int rows : {256, 512, 1024, 2048}) {
        for (const int unroll : {1, 2, 4, 8}) {
          for (const CachePolicy policy : {kDefault, kStreamAll, kStreamLoads}) {
            const Config config = column_sums_config(warps, lanes, rows, unroll, policy, width);
            if (is_valid_for_cuda_column_sums(config)) add_once(space, config);
          }
        }
      }
    }
  }
}

void add_row_sums(std::vector<Config>& space, int width, SpaceKind kind) {
  for (const int warps : {4, 8}) {
    for (const int lanes : {8, 32}) {
      for (const int unroll : {1, 2, 4}) {
        if (kind == SpaceKind::kSlim && unroll == 1) continue;
        for (const CachePolicy policy : {kDefault, kStreamAll}) {
          if (kind == SpaceKind::kSlim && warps == 8 && policy == kStreamAll) continue;
          const Config config = row_sums_config(warps, lanes, unroll, policy, width);
          if (is_valid_for_cuda_row_sums(config)) add_once(space, config);
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

struct CpuChoices {
  std::vector<int> blocks;
  std::vector<int> rows;
  std::vector<CachePolicy> policies;
};

CpuChoices cpu_choices(TemplateKind kind, SpaceKind space) {
  const bool slim = space == SpaceKind::kSlim;
  switch (kind) {
    case TemplateKind::kElementwise:
      if (slim) return {{4096}, {1, 4}, {kDefault, kStreamAll}};
      return {{1024, 4096, 16384}, {1, 4, 16}, {kDefault, kStreamAll}};
    case TemplateKind::kColumnSums:
      if (slim) return {{1024, 4096}, {256}, {kDefault}};
      return {{1024, 4096, 16384}, {256, 512, 1024}, {kDefault}};
    case TemplateKind::kRowSums:
      if (slim) return {{4096}, {1, 16}, {kDefault}};
      return {{4096}, {1, 4, 16, 64}, {kDefault}};
  }
  return {};
}

// One, all, and something between; of the comprehensive space 2, 8, 32 and so on.
std::vector<int> worker_choices(int processors, SpaceKind kind) {
  std::vector<int> choices = {1};
  if (kind == SpaceKind::kComprehensive) {
    for (int workers = 2; workers < processors; workers *= 4) choices.push_back(workers);
  } else {
    int middle = 1;
    while (middle * middle < processors) middle *= 2;
    if (middle > 1 && middle < processors) choices.push_back(middle);
  }
  if (processors > 1) choices.push_back(processors);
  return choices;
}

void add_cpu(std::vector<Config>& space, int processors, TemplateKind used, SpaceKind kind) {
  const CpuChoices choices = cpu_choices(used, kind);
  for (const int block : choices.blocks) {
    for (const int rows : choices.rows) {
      for (const CachePolicy policy : choices.policies) {
        for (const int workers : worker_choices(processors, kind)) {
          add_once(space, cpu_config(block, workers, rows, policy));
        }
      }
    }
  }
}

void add_cuda(std::vector<Config>& space, TemplateKind kind, int width, SpaceKind space_kind) {
  const bool slim = space_kind == SpaceKind::kSlim;
  switch (kind) {
    case TemplateKind::kElementwise:
      return slim ? add_elementwise_slim(space, width) : add_elementwise_grid(space, width);
    case TemplateKind::kColumnSums:
      return slim ? add_column_sums_slim(space, width) : add_column_sums_grid(space, width);
    case TemplateKind::kRowSums:
      return add_row_sums(space, width, space_kind);
  }
}

}  // namespace

int widest_vector(const Variant& variant, DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return 1;
  int largest = 1;
  const Operation& s = *variant.operation;
  for (std::size_t i = 0; i < s.operands.size(); ++i) {
    if (s.operands[i].shape.is_matrix() && variant.has(i)) {
      largest = std::max(largest, size_in_bytes(variant.types[i]));
    }
  }
  return std::min(kMaxVectorWidth, kMaxVectorBytes / largest);
}

Config default_config(const Variant& variant, const SpaceTraits& traits, int vector_width) {
  if (traits.kind == DeviceKind::kCpu) {
    Config config = builtin_cpu_config(variant);
    config.num_warps = traits.processors;
    return config;
  }
  const int width = std::min(vector_width, widest_vector(variant, traits.kind));
  switch (template_kind(variant)) {
    case TemplateKind::kColumnSums:
      return column_sums_config(16, 16, 256, 4, kDefault, width);
    case TemplateKind::kRowSums:
      return row_sums_config(4, 32, 2, kDefault, width);
    case TemplateKind::kElementwise:
      break;
  }
  return elementwise_config(4, 1, 1, 1, kDefault, width);
}

std::vector<Config> config_space(const Variant& variant, const SpaceTraits& traits,
                                 int vector_width, SpaceKind kind) {
  std::vector<Config> space = {default_config(variant, traits, vector_width)};
  const TemplateKind used = template_kind(variant);
  if (traits.kind == DeviceKind::kCpu) {
    add_cpu(space, traits.processors, used, kind);
    return space;
  }
  const int width = space.front().vector_width;
  add_cuda(space, used, width, kind);
  if (kind == SpaceKind::kComprehensive && width > 1) add_cuda(space, used, width / 2, kind);
  return space;
}

Config compiled_part(const Config& config, DeviceKind kind) {
  Config compiled = config;
  if (kind == DeviceKind::kCpu) compiled.num_warps = 1;
  return compiled;
}

}  // namespace dorajit::kernels
