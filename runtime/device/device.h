// One processor that runs kernels, and what the tuner needs of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernel_templates/arguments.h"
#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"
#include "runtime/compile/compiler.h"

namespace dorajit::device {

// A CUstream; ignored by the CPU device, whose calls return when their work is done.
using Stream = void*;

// Code that is ready to run on the device that loaded it. Unloaded by its destructor.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  // What it was compiled for.
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
  std::string name;            // "NVIDIA H200"
  std::string fingerprint;     // what decides whether a tuning result carries over
  std::string driver_version;  // CUDA version of the driver; kernel release for the CPU
  compile::Target target;
  std::int64_t cache_bytes = 0;  // the last-level cache that a cold measurement must defeat
  std::int64_t memory_bytes = 0;
};

// Enqueues work on a stream.
using Enqueue = std::function<Status(Stream)>;

// Implementations are thread-safe.
class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual const DeviceInfo& info() const = 0;

  virtual Result<std::shared_ptr<const LoadedKernel>> load(const Artifact& artifact,
                                                           const kernels::Variant& variant) = 0;

  // Enqueues the kernel on the stream, both stages of it if it has two. Allocates, locks and logs
  // nothing.
  virtual Status launch(const LoadedKernel& kernel, const kernels::Config& config,
                        const kernels::KernelArguments& arguments, Stream stream) = 0;

  // Whether the stream is being captured into a graph.
  [[nodiscard]] virtual bool is_capturing(Stream stream) = 0;

  // Whether kernels of this device may touch `pointer`. kWrongDevice when they may not.
  virtual Status check_pointer(const void* pointer) = 0;

  // For the tuner, the checks and the command line; never on the launch path.
  virtual Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) = 0;
  virtual Result<std::int64_t> free_memory() = 0;
  virtual Status upload(void* destination, const void* source, std::size_t bytes) = 0;
  virtual Status download(void* destination, const void* source, std::size_t bytes) = 0;
  virtual Status fill(void* destination, int byte, std::size_t bytes) = 0;
  // Enqueues a copy within the device, as fast as the device's own copy is.
  virtual Status copy(void* destination, const void* source, std::size_t bytes, Stream stream) = 0;
  virtual Status synchronize(Stream stream) = 0;

  // A stream of this object's own, on which nothing of the caller's ever waits.
  [[nodiscard]] virtual Stream own_stream() const = 0;

  // Nanoseconds that the device needs for what `work` enqueues on the stream that it is given: its
  // launches and copies, one after the other, at the device's own pace. What `before` enqueues runs
  // right before it and is not timed.
  virtual Result<double> time_ns(const Enqueue& before, const Enqueue& work) = 0;
};

}  // namespace dorajit::device
