// What the host knows of a launch, of which kernels get their part.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel_templates/arguments.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

inline constexpr std::size_t kMaxCallScalars = 12;

// KernelArguments, which has room for the first sizes and scalars, and all of them.
struct LaunchArguments : KernelArguments {
  Sizes all_sizes{};
  std::array<double, kMaxCallScalars> all_scalars{};

  LaunchArguments() : KernelArguments{} {}
  // Of an operation that KernelArguments has room for.
  LaunchArguments(const KernelArguments& arguments) : KernelArguments(arguments) {
    std::ranges::copy(arguments.sizes, all_sizes.begin());
    std::ranges::copy(arguments.scalars, all_scalars.begin());
  }

  void set_sizes(const Sizes& values) {
    all_sizes = values;
    std::copy_n(values.begin(), kMaxDimensions, sizes);
  }
  void set_scalars(std::span<const double> values) {
    const std::size_t count = std::min(values.size(), kMaxCallScalars);
    std::copy_n(values.begin(), count, all_scalars.begin());
    std::copy_n(all_scalars.begin(), kMaxScalars, scalars);
  }
};

// The parameters of a CUDA kernel that takes its arguments one by one. Not initialised.
struct KernelParameters {
  static constexpr std::size_t kMax = kMaxOperands + kMaxCallScalars;

  std::array<std::uint64_t, kMax> values;  // of those that are converted
  std::array<void*, kMax> addresses;       // of the parameters, in their order
};

}  // namespace dorajit::kernels
