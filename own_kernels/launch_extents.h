// The launches of an own kernel for the sizes of a call: how large they are, and whether a device
// can make them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernel_templates/config.h"
#include "kernel_templates/launch_shape.h"
#include "kernel_templates/spaces.h"
#include "own_kernels/own_operation.h"

namespace dorajit::own_kernels {

// What expressions of launches read: OwnOperation::names.
using Values = std::array<std::int64_t, kernels::kMaxSizes + kernels::Config::kMaxTunables + 1>;
Values values_of(const OwnOperation& own, const kernels::Sizes& sizes,
                 const kernels::Config& config, int processors);

// "n = 100, BLOCK = 64": those that the expression reads.
std::string describe_values(const OwnOperation& own, const Values& values,
                            const Expression& expression);
// `its FIELD "EXPRESSION" WHAT, with VALUES`.
std::string explain_value(const OwnOperation& own, const Values& values, std::string_view field,
                          const Expression& expression, std::string_view what);

// Nothing for a launch that no device can make.
std::optional<kernels::StageShape> stage_shape(const OwnOperation::Stage& stage,
                                               const Values& values);

// Why a device cannot make the launch; empty, without an allocation, if it can. Of an unknown
// device, whose architecture is 0, only what holds for every one counts.
std::string why_not_launchable(const OwnOperation& own, const OwnOperation::Stage& stage,
                               const Values& values, const kernels::SpaceTraits& traits);

// Why a device cannot make a tensor map of the kernel, or has none; as why_not_launchable().
std::string why_no_tensor_map(const kernels::Variant& variant, const kernels::Sizes& sizes,
                              const Values& values, const kernels::SpaceTraits& traits);

}  // namespace dorajit::own_kernels
