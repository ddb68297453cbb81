// The CPU as a device: templates compiled by the host's compiler, run over a thread pool.
#pragma once

#include <memory>

#include "kernel_templates/registry.h"
#include "runtime/device/cpu/thread_pool.h"
#include "runtime/device/device.h"

namespace dorajit::device {

class CpuDevice final : public Device {
 public:
  // Runs a kernel on at most `most_threads` threads, the caller's among them; 0 for as many as this
  // process may use. Another number of threads is another device to the tuner.
  explicit CpuDevice(int most_threads = 0);

  // The kernel that the library holds itself; null for a variant that has none.
  static std::shared_ptr<const LoadedKernel> builtin(const kernels::Variant& variant);

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  Result<std::shared_ptr<const LoadedKernel>> load(const Artifact& artifact,
                                                   const kernels::Variant& variant) override;
  Status launch(const LoadedKernel& kernel, const kernels::Config& config,
                const kernels::KernelArguments& arguments, Stream stream) override;
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
