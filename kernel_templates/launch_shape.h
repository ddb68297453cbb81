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

inline constexpr std::size_t kTensorMaps = 8;  // maximum of a kernel

// The parameters of a CUDA kernel that takes its arguments one by one. Not initialised but for the
// place of the tensor maps.
struct KernelParameters {
  static constexpr std::size_t kMax =
      kMaxOperands + kMaxCallScalars + kTensorMaps + 1;  // with a workspace
  static constexpr std::size_t kTensorMapBytes = 128;

  std::array<std::uint64_t, kMax> values;  // of those that are converted
  std::array<void*, kMax> addresses;       // of the parameters, in their order
  std::byte* tensor_maps = nullptr;        // where the device encodes them, one after the other
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
  // Programs of a cluster along each axis. All 1: what the kernel was compiled with, if anything.
  int cluster_x = 1;
  int cluster_y = 1;
  int cluster_z = 1;
  bool is_cooperative = false;  // programs wait for each other: the device must hold all at once

  [[nodiscard]] bool has_cluster() const { return cluster_x * cluster_y * cluster_z > 1; }
  [[nodiscard]] long long programs() const { return grid_x * grid_y * grid_z; }
};

inline constexpr std::size_t kMaxLaterStages = 3;

struct LaunchShape {
  StageShape run;
  // Of the stages after the first one; those without programs are not launched.
  std::array<StageShape, kMaxLaterStages> later{};
  double work = 0;  // elements processed; a CPU derives the number of workers from it
};

// A tensor of which the tensor memory accelerator (TMA) of a GPU loads boxes to shared memory; the
// device makes a tensor map from it. Elements outside the tensor are zero.
struct TensorBox {
  static constexpr int kMaxRank = 5;

  // Of the tensor, aligned to 16 bytes. Null: the kernel does not read the map.
  void* data = nullptr;
  ElementType type = ElementType::kAbsent;
  int rank = 0;
  // The contiguous dimension first.
  std::array<long long, kMaxRank> sizes{};
  // From one element along the next dimension to the next, in bytes: multiples of 16.
  std::array<long long, kMaxRank - 1> strides{};
  std::array<int, kMaxRank> box{};  // elements along each dimension
  int swizzle_bytes = 0;            // 0, 32, 64 or 128
};

// The boxes of a kernel's tensor maps, in the order of the parameter that follows its arguments.
struct TensorBoxes {
  std::array<TensorBox, kTensorMaps> boxes{};
  std::size_t count = 0;
};

}  // namespace dorajit::kernels
