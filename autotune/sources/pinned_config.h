// What a pinned problem runs on a device (docs/lock_file.md).
#pragma once

#include "cache/records/pins.h"
#include "runtime/base/settings.h"
#include "runtime/launch/config_source.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::autotune {

// The pin of a problem to that config on this device. Builds the kernel now.
// kInvalidArgument for a config that is beyond the limits of its template here.
Result<cache::Pin> pin_of(const launch::Problem& problem, const kernels::Config& config,
                          device::Device& device, launch::KernelCache& kernels);

// The answer where a file of pins says all (Pins::locked_path() is not null), without tuning. A
// problem that is missing from the file runs its default config; a problem whose code differs runs
// the config of the file. Both are misses, which are logged once or refused.
launch::ConfigAnswer locked_answer(const cache::Pins& pins, LockedMiss on_miss,
                                   const launch::Problem& problem, device::Device& device,
                                   launch::KernelCache& kernels);

}  // namespace dorajit::autotune
