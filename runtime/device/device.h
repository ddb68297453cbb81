// Interface of a device that runs kernels, including the operations that the tuner needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernel_templates/config.h"
#include "kernel_templates/launch_shape.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"
#include "runtime/compile/compiler.h"

namespace dorajit::device {

// A CUstream. The CPU device ignores it: its calls return when their work is done.
using Stream = void*;

// Code that is ready to run on the device that loaded it. Unloaded by its destructor.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  // The variant that it was compiled for.
  [[nodiscard]] const kernels::Variant& variant() const { return variant_; }

 protected:
  explicit LoadedKernel(const kernels::Variant& variant) : variant_(variant) {}

 private:
  kernels::Variant variant_;
};

// Memory of a device, freed by its destructor.
class Buffer {
 public:
  virtual ~Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 protected:
  Buffer(std::byte* data, std::size_t size) : data_(data), size_(size) {}

 private:
  std::byte* data_;
  std::size_t size_;
};

struct DeviceInfo {
  kernels::SpaceTraits traits;
  int ordinal = 0;
  std::string name;  // "NVIDIA H200"
  // Identity of the device for tuning results: equal fingerprints share winners.
  std::string fingerprint;
  std::string driver_version;  // CUDA version of the driver; kernel release for the CPU
  compile::Target target;
  // Size of the last-level cache, which a cold measurement has to flush.
  std::int64_t cache_bytes = 0;
  std::int64_t memory_bytes = 0;
};

// A function that enqueues work on a stream.
using Enqueue = std::function<Status(Stream)>;

// Implementations are thread-safe.
class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual const DeviceInfo& info() const = 0;

  virtual Result<std::shared_ptr<const LoadedKernel>> load(const Artifact& artifact,
                                                           const kernels::Variant& variant) = 0;

  // Enqueues the kernel on the stream, including its second stage if it has one. Does not allocate,
  // lock or log.
  virtual Status launch(const LoadedKernel& kernel, const kernels::Config& config,
                        const kernels::LaunchArguments& arguments, Stream stream) = 0;

  // Whether the stream is being captured into a graph.
  [[nodiscard]] virtual bool is_capturing(Stream stream) = 0;

  // Whether kernels of this device may access `pointer`. kWrongDevice if not.
  virtual Status check_pointer(const void* pointer) = 0;

  // For the tuner, the checks and the command line; never used on the launch path.
  virtual Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) = 0;
  virtual Result<std::int64_t> free_memory() = 0;
  virtual Status upload(void* destination, const void* source, std::size_t bytes) = 0;
  virtual Status download(void* destination, const void* source, std::size_t bytes) = 0;
  virtual Status fill(void* destination, int byte, std::size_t bytes) = 0;
  // Enqueues a copy within the device at the full speed of the device's copy.
  virtual Status copy(void* destination, const void* source, std::size_t bytes, Stream stream) = 0;
  virtual Status synchronize(Stream stream) = 0;

  // A stream that this object owns. It and the caller's streams never wait for each other.
  [[nodiscard]] virtual Stream own_stream() const = 0;

  // The time, in nanoseconds, that the device needs for the launches and copies that `work`
  // enqueues on the given stream, run back to back. What `before` enqueues runs right before it and
  // is not timed.
  virtual Result<double> time_ns(const Enqueue& before, const Enqueue& work) = 0;
};

}  // namespace dorajit::device
