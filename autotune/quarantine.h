// Configs that are not to be tried again.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cache/tuning_records.h"
#include "cache/tuning_store.h"
#include "kernel_templates/registry.h"
#include "runtime/device/device.h"

namespace dorajit::autotune {

// What a config's being good or bad depends on, beside the config: device, variant and templates.
std::string quarantine_scope(const kernels::Variant& variant, const device::DeviceInfo& device);

// The configs of those trials that are quarantined for a variant on a device, each once. Trials of
// other devices, variants and templates say nothing.
std::vector<kernels::Config> quarantined_configs(std::span<const cache::Trial> trials,
                                                 const kernels::Variant& variant,
                                                 const device::DeviceInfo& device);

// The same of all that the store knows, of whatever shape: what TuneLimits::left_out is for.
std::vector<kernels::Config> quarantined_configs(cache::TuningStore& store,
                                                 const kernels::Variant& variant,
                                                 const device::DeviceInfo& device);

}  // namespace dorajit::autotune
