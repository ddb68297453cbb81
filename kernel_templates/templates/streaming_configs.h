// The templates that evaluate a formula for each element of matrices and sum its terms, and what
// they have in common: configs, partial sums and sizes for verification.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "kernel_templates/config.h"
#include "kernel_templates/launch_shape.h"
#include "kernel_templates/partial_sums.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/streaming_config.h"
#include "kernel_templates/template.h"

namespace dorajit::kernels {

inline constexpr StreamingConfig kBuiltinElementwise{.block_size = 4096};
inline constexpr StreamingConfig kBuiltinColumnSums{.block_size = 4096, .rows_per_program = 256};
inline constexpr StreamingConfig kBuiltinRowSums{.block_size = 4096, .rows_per_program = 16};

extern const Template elementwise_template;  // no sum
extern const Template column_sums_template;  // a sum for each column
extern const Template row_sums_template;     // a sum for each channel, with channels along the rows

// The template for a variant of an operation with a formula.
const Template& formula_template(const Variant& variant);

// Maximum rows of a program. Verification has shapes for it (verified_matrices()).
inline constexpr int kTallestElementwiseProgram = 16;
inline constexpr int kTallestSumProgram = 2048;

inline constexpr char kUnroll = 'u';
inline constexpr char kCaching = 'c';

// The config as the tunables b, w, r, v, u and c.
constexpr Config as_config(const StreamingConfig& config) {
  return {{kColumnsOfProgram, config.block_size},
          {kWarps, config.num_warps},
          {kRowsOfProgram, config.rows_per_program},
          {kVectorWidth, config.vector_width},
          {kUnroll, config.unroll},
          {kCaching, static_cast<int>(config.cache_policy)}};
}

// The inverse of as_config(); nothing for a config with other tunables.
std::optional<StreamingConfig> as_streaming(const Config& config);

// The config as an expression of the generated source.
std::string streaming_expression(const Config& config);

// A CUDA config with `lanes` vectors side by side along the columns.
StreamingConfig cuda_config(int warps, int lanes, int rows, int unroll, CachePolicy policy,
                            int width);

// Adds each config unless the space contains it.
void add_once(std::vector<Config>& space, std::initializer_list<StreamingConfig> configs);

// Half as many elements an access, where there is more than one.
constexpr int half_width(int width) { return width > 1 ? width / 2 : 1; }

// The configs to try on a CPU, except for numbers of workers.
struct CpuChoices {
  std::vector<int> blocks;
  std::vector<int> rows;
  std::vector<CachePolicy> policies;
};

// How a template fills its space.
struct StreamingSpace {
  StreamingConfig builtin;  // the CPU's default without its workers
  StreamingConfig (*default_cuda_config)(int width);
  void (*add_cuda_configs)(std::vector<Config>& space, int width, SpaceKind kind);
  CpuChoices (*cpu_choices)(SpaceKind kind);
};

Config default_config(const StreamingSpace& space, const Variant& variant,
                      const SpaceTraits& traits, int vector_width);
std::vector<Config> config_space(const StreamingSpace& space, const Variant& variant,
                                 const SpaceTraits& traits, int vector_width, SpaceKind kind);

// One program for each block of columns in each group of rows.
StageShape matrix_stage(const Config& config, const KernelArguments& arguments);
double elements_of_matrix(const KernelArguments& arguments);

// On a GPU, a block that is wider than the matrix leaves threads idle: up to two thirds more time
// if the winner's own matrix was wide enough for the block.
double streaming_misfit(const Variant& variant, const SpaceTraits& traits, const Sizes& sizes,
                        const Config& config);

// The reason for a config of another template, or for one that fails the template's assertions.
inline constexpr const char* kNotAllowed = "its template does not allow it";

// Why a config that meets the template's assertions is refused: bounds on what the assertions leave
// open. Empty if it is within the bounds.
std::string why_beyond_limits(const Variant& variant, DeviceKind kind,
                              const StreamingConfig& config, int tallest_program);

SumLayout layout_of(const Variant& variant, const Config& config, const KernelArguments& arguments);

// The second stage; it has no programs if each sum is complete after the first.
StageShape finish_stage(const Variant& variant, const Config& config,
                        const KernelArguments& arguments);

std::int64_t sum_workspace(const Variant& variant, DeviceKind kind, const Sizes& sizes);

// The number of elements of a matrix that the host reference computes quickly.
inline constexpr std::int64_t kReferenceElements = 1 << 20;

// Several rows, twice, so that two seeds are tried; and ragged rows, whose last vector and last
// block are incomplete.
std::vector<Sizes> verified_matrices(const Variant& variant, const Sizes& problem);

}  // namespace dorajit::kernels
