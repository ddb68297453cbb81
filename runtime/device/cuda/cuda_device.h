// One NVIDIA GPU through the Driver API, in its primary context, which the process may use for
// other work too.
#pragma once

#include <memory>

#include "runtime/device/device.h"
#include "runtime/driver/cuda_driver.h"

namespace dorajit::device {

class CudaDevice final : public Device {
 public:
  // The number of GPUs that the driver reports; kNoDriver without a driver.
  static Result<int> count();

  static Result<std::unique_ptr<CudaDevice>> open(int ordinal);

  ~CudaDevice() override;

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  Result<std::shared_ptr<const LoadedKernel>> load(const Artifact& artifact,
                                                   const kernels::Variant& variant) override;
  Status launch(const LoadedKernel& kernel, const kernels::Config& config,
                const kernels::LaunchArguments& arguments, Stream stream) override;
  [[nodiscard]] bool is_capturing(Stream stream) override;
  Status check_pointer(const void* pointer) override;
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override;
  Result<std::int64_t> free_memory() override;
  Status upload(void* destination, const void* source, std::size_t bytes) override;
  Status download(void* destination, const void* source, std::size_t bytes) override;
  Status fill(void* destination, int byte, std::size_t bytes) override;
  Status copy(void* destination, const void* source, std::size_t bytes, Stream stream) override;
  Status synchronize(Stream stream) override;
  [[nodiscard]] Stream own_stream() const override { return own_stream_; }
  Result<double> time_ns(const Enqueue& before, const Enqueue& work) override;

 private:
  CudaDevice(const driver::CudaDriver& driver, driver::CuDevice device, driver::CuContext context);

  Status read_info(int ordinal);
  Status create_stream();

  const driver::CudaDriver& driver_;
  driver::CuDevice device_;
  driver::CuContext context_;
  // Independent of the caller's streams: neither waits for the other.
  driver::CuStream own_stream_ = nullptr;
  // Maximum shared memory of a program that opts in to more than the default.
  int max_shared_bytes_ = 0;
  bool pageable_access_ = false;
  // Uses programmatic launches: kernels wait for their inputs themselves.
  bool launches_early_ = false;
  DeviceInfo info_;
};

}  // namespace dorajit::device
