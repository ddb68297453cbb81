// The spaces of configs that the tuner tries for a variant.
#pragma once

#include <string>
#include <vector>

#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

enum class SpaceKind { kSlim, kComprehensive };

// The device properties that a space depends on.
struct SpaceTraits {
  DeviceKind kind = DeviceKind::kCpu;
  int processors = 1;    // SMs, or useful CPU threads
  int architecture = 0;  // compute capability, 90 for 9.0; 0 on a CPU
};

// Why a config must not be compiled for data of those sizes and that alignment class on that
// device; empty if it may. For bucketed dimensions, pass the largest size of the bucket. Checks the
// conditions that the templates assert, and bounds what they leave open: the code generated for a
// thread, the rows of a program and the workers of a CPU. Every config of a space is within these
// limits. A config that a later version removed from the space may be within them too, and is then
// equally valid.
std::string why_config_is_invalid(const Variant& variant, const SpaceTraits& traits,
                                  int vector_width, const Sizes& sizes, const Config& config);

// The same without data and independent of the number of processors: why no kernel of the variant
// can have the config on devices of that kind and architecture.
std::string why_config_is_invalid(const Variant& variant, const SpaceTraits& traits,
                                  const Config& config);

// The shared memory, in bytes, of a block on CUDA devices of that compute capability (90 for 9.0)
// at most: CUDA C++ Programming Guide, technical specifications. Of an unknown one what all have.
std::int64_t max_shared_bytes(int architecture);

// The multiprocessors of a usual GPU of that compute capability, where no GPU is there to ask.
int usual_multiprocessors(int architecture);

inline constexpr int kMaxVectorWidth = 8;

// Whether kernels convert the operand's elements first (Operand::is_converted).
bool is_converted(const Variant& variant, std::size_t operand);

// The widest vector, in elements, that any config of the variant uses: 16 bytes of its widest
// matrix operand, at most 8 elements. Alignment may limit it further.
int widest_vector(const Variant& variant, DeviceKind kind);

// The config that is used when no winner is known. Valid for every problem whose alignment class is
// at least `vector_width` (1 on the CPU), unless problems of its sizes have their own default.
Config default_config(const Variant& variant, const SpaceTraits& traits, int vector_width);

// The default for problems of those sizes, valid for them; for bucketed dimensions, pass the
// largest size of the bucket.
Config default_config(const Variant& variant, const SpaceTraits& traits, int vector_width,
                      const Sizes& sizes);

// Every config to try for problems of that alignment class: the default first, no duplicates.
std::vector<Config> config_space(const Variant& variant, const SpaceTraits& traits,
                                 int vector_width, SpaceKind kind);

// The configs of the space that are valid for problems of those sizes, their default first.
std::vector<Config> config_space(const Variant& variant, const SpaceTraits& traits,
                                 int vector_width, SpaceKind kind, const Sizes& sizes);

// How badly a config that won elsewhere fits the sizes on such a device, as a distance between
// sizes in factors of two (autotune/sources/fallback_chain.h). 0 if it fits.
double misfit(const Variant& variant, const SpaceTraits& traits, const Sizes& sizes,
              const Config& config);

// The part of the config that the compiler sees: tunables that only matter at launch are set to a
// fixed value, so that configs that differ only in those share one artifact.
Config compiled_part(const Config& config, DeviceKind kind);

}  // namespace dorajit::kernels
