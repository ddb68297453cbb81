#include "kernel_templates/config_limits.h"

#include <format>

namespace dorajit::kernels {
namespace {

// The code of a thread, and the time to compile it, grow with these. No space has more than 8.
constexpr int kMostUnroll = 8;
constexpr int kMostVectorsInFlight = 8;
constexpr int kWidestCpuBlock = 1 << 16;

bool meets_assertions(TemplateKind kind, DeviceKind device, const Config& config) {
  const bool is_cpu = device == DeviceKind::kCpu;
  switch (kind) {
    case TemplateKind::kElementwise:
      return is_cpu ? is_valid_for_cpu(config) : is_valid_for_cuda_elementwise(config);
    case TemplateKind::kColumnSums:
      return is_cpu ? is_valid_for_cpu_column_sums(config) : is_valid_for_cuda_column_sums(config);
    case TemplateKind::kRowSums:
      return is_cpu ? is_valid_for_cpu(config) : is_valid_for_cuda_row_sums(config);
  }
  return false;
}

// Of a CUDA elementwise config that meets the assertions.
int vectors_in_flight(const Config& config) {
  const int of_a_row =
      config.block_size / (config.num_warps * kThreadsPerWarp * config.vector_width);
  return of_a_row <= kMostVectorsInFlight ? of_a_row * config.unroll : of_a_row;
}

}  // namespace

std::string why_config_is_invalid(const Variant& variant, DeviceKind kind, const Config& config) {
  const TemplateKind used = template_kind(variant);
  if (!meets_assertions(used, kind, config)) return "its template does not allow it";
  if (config.cache_policy < CachePolicy::kDefault ||
      config.cache_policy > CachePolicy::kStreamLoads) {
    return "it has an unknown cache policy";
  }
  const int widest = widest_vector(variant, kind);
  if (config.vector_width > widest) {
    return std::format("its vectors of {} elements are wider than {}", config.vector_width, widest);
  }
  if (config.unroll > kMostUnroll) {
    return std::format("it has {} rows in flight, more than {}", config.unroll, kMostUnroll);
  }
  const bool is_elementwise = used == TemplateKind::kElementwise;
  const int tallest = is_elementwise ? kTallestElementwiseProgram : kTallestSumProgram;
  if (config.rows_per_program > tallest) {
    return std::format("its programs of {} rows are taller than {}", config.rows_per_program,
                       tallest);
  }
  if (kind == DeviceKind::kCpu && config.block_size > kWidestCpuBlock) {
    return std::format("its programs of {} columns are wider than {}", config.block_size,
                       kWidestCpuBlock);
  }
  if (kind == DeviceKind::kCuda && is_elementwise &&
      vectors_in_flight(config) > kMostVectorsInFlight) {
    return std::format("its threads have more than {} vectors in flight", kMostVectorsInFlight);
  }
  return {};
}

std::string why_config_is_invalid(const Variant& variant, const SpaceTraits& traits,
                                  int vector_width, const Config& config) {
  if (config.vector_width > vector_width) {
    return std::format("its vectors of {} elements do not fit the data, which is aligned to {}",
                       config.vector_width, vector_width);
  }
  if (traits.kind == DeviceKind::kCpu && config.num_warps > traits.processors) {
    return std::format("its {} workers are more than the {} processors", config.num_warps,
                       traits.processors);
  }
  return why_config_is_invalid(variant, traits.kind, config);
}

}  // namespace dorajit::kernels
