// The CPU as a device: its properties, and templates compiled by the host's compiler, run on a
// thread pool.
#pragma once

#include <memory>

#include "kernel_templates/registry.h"
#include "runtime/device/cpu/thread_pool.h"
#include "runtime/device/device.h"

namespace dorajit::device {

class CpuDevice final : public Device {
 public:
  // Runs a kernel on at most `max_threads` threads, including the caller's; 0: as many as this
  // process may use. The tuner treats a different number of threads as a different device.
  explicit CpuDevice(int max_threads = 0);

  // The built-in kernel of the library; null for a variant that has none.
  static std::shared_ptr<const LoadedKernel> builtin(const kernels::Variant& variant);

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  Result<std::shared_ptr<const LoadedKernel>> load(const Artifact& artifact,
                                                   const kernels::Variant& variant) override;
  Status launch(const LoadedKernel& kernel, const kernels::Config& config,
                const kernels::LaunchArguments& arguments, Stream stream) override;
  [[nodiscard]] bool is_capturing(Stream) override { return false; }
  Status check_pointer(const void* pointer) override;
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override;
  Result<std::int64_t> free_memory() override;
  Status upload(void* destination, const void* source, std::size_t bytes) override;
  Status download(void* destination, const void* source, std::size_t bytes) override;
  Status fill(void* destination, int byte, std::size_t bytes) override;
  Status copy(void* destination, const void* source, std::size_t bytes, Stream stream) override;
  Status synchronize(Stream) override { return {}; }
  [[nodiscard]] Stream own_stream() const override { return nullptr; }
  Result<double> time_ns(const Enqueue& before, const Enqueue& work) override;

 private:
  DeviceInfo info_;
  ThreadPool pool_;
};

}  // namespace dorajit::device
