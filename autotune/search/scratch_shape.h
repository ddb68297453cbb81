// The sizes and the number of sets of scratch operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

struct ScratchShape {
  kernels::Sizes sizes{};  // of every dimension, derived ones included
  std::int64_t sets = 1;   // independent copies for rotation
  int vector_width = 1;    // the exact alignment class of the operands
  std::uint64_t seed = 1;
  // Before and after every operand and the workspace; a multiple of 256.
  std::size_t guard_bytes = 256;
  // Whether operands that are only aligned to their elements (Operand::is_unaligned) are not
  // aligned to more.
  bool misaligns = false;
};

// Maximum size of scratch operands, unless the settings differ.
inline constexpr std::int64_t kMaxScratchBytes = std::int64_t{2} << 30;

// Bytes that scratch operands may use: the value of the settings, or, if that is 0, a quarter of
// the device's free memory, at most kMaxScratchBytes.
Result<std::int64_t> scratch_budget(std::int64_t scratch_bytes, device::Device& device);

// The largest sizes of the problem, with bucketed sizes halved until one set takes at most `bytes`;
// sizes stay at least 1.
ScratchShape scratch_shape(const launch::Problem& problem, kernels::DeviceKind kind,
                           std::int64_t bytes);

// The same, starting from other sizes. `bytes_of` returns the bytes that a shape takes.
ScratchShape fitting_shape(const launch::Problem& problem, const kernels::Sizes& sizes,
                           std::int64_t bytes,
                           const std::function<std::int64_t(const ScratchShape&)>& bytes_of);

// kOutOfMemory unless one set of the shape fits in `bytes`: with few very long rows, even one may
// not.
Status check_fits(const launch::Problem& problem, const ScratchShape& shape,
                  kernels::DeviceKind kind, std::int64_t bytes);

// The shape on which candidates are timed, within scratch_budget(): as many rows of the bucket as
// the memory allows, and as many sets as make the cache cold.
Result<ScratchShape> measured_shape(const launch::Problem& problem, device::Device& device,
                                    std::int64_t scratch_bytes);

}  // namespace dorajit::autotune
