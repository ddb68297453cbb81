// What the configs of templates that stream matrices through have in common.
#pragma once

#include <string>
#include <vector>

#include "kernel_templates/spaces.h"

namespace dorajit::kernels {

// Rows of one program at most. Verification has shapes for them (verified_matrices.h).
inline constexpr int kTallestElementwiseProgram = 16;
inline constexpr int kTallestSumProgram = 2048;

// A CUDA config with `lanes` vectors side by side along the columns.
Config cuda_config(int warps, int lanes, int rows, int unroll, CachePolicy policy, int width);

// Adds the config unless the space has it.
void add_once(std::vector<Config>& space, const Config& config);

// What is to be tried on a CPU, beside numbers of workers.
struct CpuChoices {
  std::vector<int> blocks;
  std::vector<int> rows;
  std::vector<CachePolicy> policies;
};

// How one template fills its space.
struct StreamingSpace {
  Config builtin;  // the CPU's default but for its workers
  Config (*default_cuda_config)(int width);
  void (*add_cuda_configs)(std::vector<Config>& space, int width, SpaceKind kind);
  CpuChoices (*cpu_choices)(SpaceKind kind);
};

Config default_config(const StreamingSpace& space, const Variant& variant,
                      const SpaceTraits& traits, int vector_width);
std::vector<Config> config_space(const StreamingSpace& space, const Variant& variant,
                                 const SpaceTraits& traits, int vector_width, SpaceKind kind);

// Why a config that meets the template's assertions is refused all the same: what it leaves open
// has bounds. Empty if it is not.
std::string why_beyond_limits(const Variant& variant, DeviceKind kind, const Config& config,
                              int tallest_program);

inline constexpr const char* kFailsAssertions = "its template does not allow it";

}  // namespace dorajit::kernels
