// Which configs there are to try for a variant.
#pragma once

#include <vector>

#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

enum class SpaceKind { kSlim, kComprehensive };

// What a space needs to know of a device.
struct SpaceTraits {
  DeviceKind kind = DeviceKind::kCpu;
  int processors = 1;    // SMs, or CPU threads worth using
  int architecture = 0;  // compute capability, 90 for 9.0; 0 on a CPU
};

// The widest vector, in elements, that any config of the variant uses: 16 bytes of its widest
// matrix operand, at most 8 elements. Alignment may limit it further.
int widest_vector(const Variant& variant, DeviceKind kind);

// The config that runs when nothing is known. Valid for every problem whose alignment class is at
// least `vector_width` (1 on the CPU), unless those of its sizes have a default of their own.
Config default_config(const Variant& variant, const SpaceTraits& traits, int vector_width);

// The same for problems of those sizes, for which it is valid: of bucketed dimensions the largest
// of the bucket.
Config default_config(const Variant& variant, const SpaceTraits& traits, int vector_width,
                      const Sizes& sizes);

// Every config to try for problems of that alignment class, the default first, without repeats.
std::vector<Config> config_space(const Variant& variant, const SpaceTraits& traits,
                                 int vector_width, SpaceKind kind);

// The same for problems of those sizes: those that are valid for them, their default first.
std::vector<Config> config_space(const Variant& variant, const SpaceTraits& traits,
                                 int vector_width, SpaceKind kind, const Sizes& sizes);

// How badly a config, which may have won elsewhere, fits the sizes on a device like that: in
// factors of two of distance between sizes (autotune/sources/nearest_winner.h). 0 if it fits.
double misfit(const Variant& variant, const SpaceTraits& traits, const Sizes& sizes,
              const Config& config);

// The config as far as the compiler sees it: what only matters at launch is set to a fixed value,
// so that configs which differ in nothing else share one artifact.
Config compiled_part(const Config& config, DeviceKind kind);

}  // namespace dorajit::kernels
