// A kernel template from the host's point of view: its sources, configs, launches and requirements.
//
// An operation selects the template that serves a variant of it; templates/ defines an object for
// each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_templates/launch_shape.h"
#include "kernel_templates/program.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"

namespace dorajit::kernels {

// Immutable, with static lifetime. Call its functions through those of the same names in
// spaces.h and sizes.h and those below, which document what they return.
struct Template {
  std::string_view name;
  std::string_view cuda_source;  // "cuda/elementwise.cuh"
  std::string_view cpu_source;   // empty: there is no kernel for the CPU
  // Defined by both sources. Takes (formula, (config), broadcast, element types...), or, for
  // operations without a formula, ((config), element types...).
  std::string_view entry_macro;
  // The stages of a launch on CUDA, in order: "kernel" for the entry dorajit_kernel, and so on. A
  // CPU has "kernel" and "finish". Null: "kernel" alone.
  std::span<const std::string_view> (*stages)(const Variant& variant) = nullptr;
  // The architecture for which its kernels use architecture-specific instructions, as in 90 for
  // sm_90a; 0: none.
  int specific_architecture = 0;
  Config builtin_config{};  // of the built-in CPU kernels

  Config (*default_config)(const Variant& variant, const SpaceTraits& traits, int vector_width);
  // The default for problems of those sizes. Null: the same as for all sizes.
  Config (*default_for_sizes)(const Variant& variant, const SpaceTraits& traits, int vector_width,
                              const Sizes& sizes) = nullptr;
  std::vector<Config> (*config_space)(const Variant& variant, const SpaceTraits& traits,
                                      int vector_width, SpaceKind kind);
  std::string (*why_config_is_invalid)(const Variant& variant, const SpaceTraits& traits,
                                       const Config& config);
  std::string (*config_expression)(const Config& config);  // in the generated source
  LaunchShape (*launch_shape)(const Variant& variant, const Config& config,
                              const LaunchArguments& arguments, int processors);
  std::int64_t (*workspace_bytes)(const Variant& variant, DeviceKind kind, const Sizes& sizes);
  // Small sizes derived from a problem (at most about 2^20 columns) on which no wrong config
  // computes the right bits: several rows, twice, so that two seeds are tried; ragged rows, whose
  // last vector and last block are incomplete; and, for sums, sizes with several partial sums.
  std::vector<Sizes> (*verification_sizes)(const Variant& variant, const Sizes& problem);
  // Why a config cannot run on those sizes, such as "its tiles of rank 1024 take 300 KiB of shared
  // memory"; empty, without an allocation, if it can. Null: every config runs on all sizes.
  std::string (*why_config_does_not_fit)(const Variant& variant, const SpaceTraits& traits,
                                         const Sizes& sizes, const Config& config) = nullptr;
  // Whether why_config_does_not_fit() is also called for the sizes of every call, which may differ
  // from those of the problem. A call that the tuned config does not fit runs the default config.
  bool fits_by_call = false;
  // What a kernel is compiled from. Null: the embedded sources and the entry macro.
  Program (*program)(const Variant& variant, const Config& config) = nullptr;
  // Writes the parameters of its CUDA kernels one by one. Null: they take a KernelArguments and
  // then the tensor maps.
  void (*put_parameters)(const Variant& variant, const LaunchArguments& arguments,
                         KernelParameters& parameters) = nullptr;
  // The exclusive upper limit, at least 1, of the values that tuning generates for an integer
  // operand that is read; 0: there is no such value for those sizes. Null: no operand has integers.
  std::int64_t (*value_limit)(const Variant& variant, std::size_t operand,
                              const Sizes& sizes) = nullptr;
  // The tensor maps that its CUDA kernels take, after the arguments or where put_parameters() puts
  // them. Null: none.
  TensorBoxes (*tensor_boxes)(const Variant& variant, const Config& config,
                              const LaunchArguments& arguments, int processors) = nullptr;
  // Sets the sizes that are kComputed or kStride: strides that leave room between rows, and that
  // belong to the alignment class if they limit it. Null: there are none.
  void (*derive_sizes)(const Variant& variant, int vector_width, Sizes& sizes) = nullptr;
  // Null: every config fits all sizes equally well.
  double (*misfit)(const Variant& variant, const SpaceTraits& traits, const Sizes& sizes,
                   const Config& config) = nullptr;
};

// Of a sum.
inline std::span<const std::string_view> two_stages(const Variant&) {
  static constexpr std::string_view kStages[] = {"kernel", "finish"};
  return kStages;
}

// The template that serves a variant.
inline const Template& template_of(const Variant& variant) {
  return variant.operation->select_template(variant);
}

// `processors`: of the device, as in SpaceTraits.
inline LaunchShape launch_shape(const Variant& variant, const Config& config,
                                const LaunchArguments& arguments, int processors) {
  return template_of(variant).launch_shape(variant, config, arguments, processors);
}

// The built-in CPU kernel, for machines without a compiler. `run` is null for an operation without
// one.
inline BuiltinKernel builtin_cpu_kernel(const Variant& variant) {
  const bool has_one = is_supported(variant) && variant.operation->builtin != nullptr;
  return has_one ? variant.operation->builtin(variant) : BuiltinKernel{};
}

// The config that the variant's built-in kernel was compiled with (num_warps is set at launch).
inline Config builtin_cpu_config(const Variant& variant) {
  return template_of(variant).builtin_config;
}

}  // namespace dorajit::kernels
