// What the host knows of a launch: its arguments, of which kernels get their part, the sizes of its
// stages, and the boxes that are moved by a copy engine.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel_templates/arguments.h"
#include "kernel_templates/config.h"
#include "kernel_templates/element_type.h"
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

// A CPU runs programs in any order and in ranges, and numbers them with x fastest.
struct StageShape {
  long long grid_x = 0;
  long long grid_y = 1;
  long long grid_z = 1;
  int threads = 0;  // of a program on CUDA, along x
  int threads_y = 1;
  int threads_z = 1;
  int shared_bytes = 0;  // dynamic shared memory of a program on CUDA

  [[nodiscard]] long long programs() const { return grid_x * grid_y * grid_z; }
};

inline constexpr std::size_t kMaxLaterStages = 3;

struct LaunchShape {
  StageShape run;
  // Of the stages after the first one; those without programs are not launched.
  std::array<StageShape, kMaxLaterStages> later{};
  double work = 0;  // elements processed; a CPU derives the number of workers from it
};

inline constexpr std::size_t kTensorMaps = 5;  // maximum of a kernel

// A matrix of which the tensor memory accelerator (TMA) of a GPU loads boxes to shared memory; the
// device makes a tensor map from it. A row of a box has 128 bytes, stored with the 128-byte
// swizzle; elements outside the matrix are zero.
struct TensorBox {
  // Of the matrix, aligned to 16 bytes. Null: the kernel does not read the map.
  void* data = nullptr;
  ElementType type = ElementType::kAbsent;
  long long rows = 0;
  long long columns = 0;
  long long row_bytes = 0;  // from one row of the matrix to the next; a multiple of 16
  int box_rows = 0;
};

// The boxes of a kernel's tensor maps, in the order of the parameter that follows its arguments.
struct TensorBoxes {
  std::array<TensorBox, kTensorMaps> boxes{};
  std::size_t count = 0;
};

}  // namespace dorajit::kernels
