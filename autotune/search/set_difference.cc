#include "autotune/search/set_difference.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "kernel_templates/integer_types.h"
#include "kernel_templates/template.h"

namespace dorajit::autotune {
namespace {

using kernels::Config;
using kernels::KernelParameters;
using kernels::LaunchArguments;
using kernels::LaunchShape;
using kernels::SpaceTraits;
using kernels::Variant;

// The numbers are those of kernels::ElementType, of floating-point types; kBytes is none of them.
constexpr std::int64_t kBytes = -1;
static_assert(kernels::kFloat8E4m3 == kernels::ElementType{14});
constexpr std::string_view kSource = R"cuda(
constexpr int kFloat8E4m3 = 14;  // float8_e5m2 is the next one, and the last

__device__ __forceinline__ double element(const void* data, long long i, int type) {
  if (type == 0) return static_cast<const float*>(data)[i];
  if (type == 3) return static_cast<const double*>(data)[i];
  unsigned short bits;
  double scale = 1;
  if (type >= kFloat8E4m3) {  // as a half with the same layout
    const unsigned byte = static_cast<const unsigned char*>(data)[i];
    bits = byte << 8;
    if (type == kFloat8E4m3) {
      if ((byte & 0x7f) == 0x7f) return __longlong_as_double(0x7ff8LL << 48);
      bits = (byte & 0x80) << 8 | (byte & 0x7f) << 7;
      scale = 256;
    }
  } else {
    bits = static_cast<const unsigned short*>(data)[i];
  }
  if (type == 1) return __uint_as_float(static_cast<unsigned>(bits) << 16);
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return scale * value;
}

__device__ unsigned long long bits_of(const void* data, long long i, int type) {
  if (type == 0) return static_cast<const unsigned*>(data)[i];
  if (type == 3) return static_cast<const unsigned long long*>(data)[i];
  if (type >= kFloat8E4m3) return static_cast<const unsigned char*>(data)[i];
  return static_cast<const unsigned short*>(data)[i];
}

// Sets *found to 1 if a byte differs, or an element by more than it may: ScratchOperands::is_near().
__global__ void dorajit_set_difference(const unsigned char* data, const unsigned char* expected,
                                       int* found, long long count, int type, double step,
                                       double tolerance, double usual, double smallest) {
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  bool differs = false;
  if (type < 0) {
#pragma unroll 8
    for (long long i = first; i < count; i += stride) differs |= data[i] != expected[i];
  } else {
#pragma unroll 4
    for (long long i = first; i < count; i += stride) {
      const double wanted = element(expected, i, type);
      const double allowed =
          step * fmax(fabs(wanted), smallest) + tolerance * fmax(fabs(wanted), usual);
      const double distance = fabs(element(data, i, type) - wanted);
      const bool is_near = distance <= allowed && distance < __longlong_as_double(0x7ff0LL << 48);
      differs |= !is_near && bits_of(data, i, type) != bits_of(expected, i, type);
    }
  }
  if (differs) *found = 1;
}
)cuda";

constexpr int kThreads = 256;
constexpr std::int64_t kElementsOfThread = 16;
constexpr std::int64_t kMaxBlocks = 4096;

enum Size : std::size_t { kCount, kType };
enum Scalar : std::size_t { kStep, kTolerance, kUsual, kSmallest };

kernels::Program program(const Variant&, const Config&) {
  return {.source = {.name = "set_difference.cu", .text = std::string(kSource)},
          .headers = {},
          .options = std::vector<std::string>{"--std=c++20", "--fmad=false"},
          .entry = "dorajit_set_difference"};
}

std::string valid(const Variant&, const SpaceTraits&, const Config&) { return {}; }

LaunchShape shape_launch(const Variant&, const Config&, const LaunchArguments& arguments, int) {
  const std::int64_t of_block = kThreads * kElementsOfThread;
  const std::int64_t blocks = (arguments.all_sizes[kCount] + of_block - 1) / of_block;
  return {.run = {.grid_x = std::clamp<std::int64_t>(blocks, 1, kMaxBlocks), .threads = kThreads}};
}

void put_parameters(const Variant&, const LaunchArguments& arguments,
                    KernelParameters& parameters) {
  std::size_t at = 0;
  const auto put = [&](const void* value) {
    parameters.addresses[at++] = const_cast<void*>(value);
  };
  for (std::size_t i = 0; i < 3; ++i) put(&arguments.operands[i].data);
  put(&arguments.all_sizes[kCount]);
  put(&arguments.all_sizes[kType]);  // its low half, on every host of an NVIDIA GPU
  for (const Scalar scalar : {kStep, kTolerance, kUsual, kSmallest})
    put(&arguments.all_scalars[scalar]);
}

constinit const kernels::Template difference_template = {.name = "set_difference",
                                                         .cuda_source = {},
                                                         .cpu_source = {},
                                                         .entry_macro = {},
                                                         .default_config = nullptr,
                                                         .config_space = nullptr,
                                                         .why_config_is_invalid = valid,
                                                         .config_expression = nullptr,
                                                         .launch_shape = shape_launch,
                                                         .workspace_bytes = nullptr,
                                                         .verification_sizes = nullptr,
                                                         .program = program,
                                                         .put_parameters = put_parameters};

constinit const kernels::Operation operation_set_difference = {
    .name = "set_difference",
    .documentation = "whether two arrays differ",
    .dimensions = {},
    .operands = {},
    .scalars = {},
    .reference = nullptr,
    .select_template = [](const Variant&) -> const kernels::Template& {
      return difference_template;
    },
    .is_offered = false,
    .sources = kSource};

}  // namespace

Variant SetDifference::variant() { return {.operation = &operation_set_difference}; }

Result<SetDifference> SetDifference::make(device::Device& device, launch::KernelCache& kernels) {
  if (device.info().traits.kind == kernels::DeviceKind::kCpu) {
    return fail(StatusCode::kUnsupported, "the memory of a CPU is compared by the host");
  }
  DORAJIT_ASSIGN(launch::ReadyKernel kernel, kernels.get(device, variant(), {}));
  DORAJIT_ASSIGN(auto found, device.allocate(2 * sizeof(int)));
  return SetDifference(device, std::move(kernel), std::move(found));
}

Result<ScratchOperands::Difference> SetDifference::find(const ScratchOperands& operands,
                                                        std::int64_t set, std::int64_t expected,
                                                        ScratchOperands::Closeness closeness,
                                                        std::span<const double> usual) const {
  using Difference = ScratchOperands::Difference;
  DORAJIT_TRY(device_->fill(found_->data(), 0, found_->size()));
  for (const ScratchOperands::Part& part : operands.parts()) {
    if (part.bytes == 0) continue;
    LaunchArguments arguments;
    arguments.operands[0].data = operands.data(set) + part.offset;
    arguments.operands[1].data = operands.data(expected) + part.offset;
    arguments.operands[2].data = found_->data() + (part.output ? 0 : sizeof(int));
    arguments.all_sizes[kCount] = static_cast<std::int64_t>(part.bytes);
    arguments.all_sizes[kType] = kBytes;
    const bool is_near_enough = closeness == ScratchOperands::Closeness::kWithinTolerance;
    const auto allowed =
        part.output && is_near_enough ? operands.allowance(*part.output) : std::nullopt;
    if (allowed) {
      arguments.all_sizes[kCount] /= kernels::element_size(allowed->type);
      arguments.all_sizes[kType] = static_cast<std::int64_t>(allowed->type);
      arguments.all_scalars[kStep] = allowed->step;
      arguments.all_scalars[kTolerance] = allowed->tolerance;
      arguments.all_scalars[kUsual] = usual[*part.output];
      arguments.all_scalars[kSmallest] = allowed->smallest;
    }
    DORAJIT_TRY(device_->launch(*kernel_.kernel, kernel_.config, arguments, device_->own_stream()));
  }
  std::array<int, 2> found{};
  DORAJIT_TRY(device_->download(found.data(), found_->data(), sizeof found));
  if (found[1] != 0) return Difference::kElsewhere;
  return found[0] != 0 ? Difference::kOutputs : Difference::kNone;
}

}  // namespace dorajit::autotune
