// A CPU device that can be told to misbehave, config by config, and how fast each config is.
#pragma once

#include <map>
#include <string>

#include "kernel_templates/config_text.h"
#include "runtime/device/cpu/cpu_device.h"

namespace dorajit::tests {

enum class Misbehaviour { kNone, kWrongBits, kFailsToLaunch };

class FakeDevice final : public device::Device {
 public:
  static constexpr double kOrdinaryTimeNs = 1e6;

  explicit FakeDevice(int processors) : info_(cpu_.info()) {
    info_.traits.processors = processors;
    info_.cache_bytes = 1 << 20;
    info_.fingerprint = "fake";
  }

  // What launches of a config do from now on, and what they are measured to take.
  void plant(const kernels::Config& config, Misbehaviour misbehaviour) {
    misbehaviours_[to_text(config)] = misbehaviour;
  }
  void set_time_ns(const kernels::Config& config, double nanoseconds) {
    times_[to_text(config)] = nanoseconds;
  }
  // Every launch from now on covers that many columns more than it was told.
  void stretch_rows(int columns) { extra_columns_ = columns; }

  [[nodiscard]] const device::DeviceInfo& info() const override { return info_; }

  Result<std::shared_ptr<const device::LoadedKernel>> load(const Artifact& artifact) override {
    return cpu_.load(artifact);
  }

  Status launch(const device::LoadedKernel& kernel, const kernels::Config& config,
                const kernels::KernelArguments& arguments, device::Stream stream) override {
    const std::string key = to_text(config);
    const auto time = times_.find(key);
    elapsed_ns_ += time == times_.end() ? kOrdinaryTimeNs : time->second;
    const auto planted = misbehaviours_.find(key);
    const auto misbehaviour =
        planted == misbehaviours_.end() ? Misbehaviour::kNone : planted->second;
    if (misbehaviour == Misbehaviour::kFailsToLaunch) {
      return fail(StatusCode::kDriverError, "planted launch failure");
    }
    kernels::KernelArguments stretched = arguments;
    stretched.num_cols += extra_columns_;
    DORAJIT_TRY(cpu_.launch(kernel, config, stretched, stream));
    if (misbehaviour == Misbehaviour::kWrongBits) {
      auto* out = static_cast<unsigned char*>(arguments.operands[3].data);
      out[0] = static_cast<unsigned char>(out[0] ^ 1U);
    }
    return {};
  }

  [[nodiscard]] bool is_capturing(device::Stream) override { return false; }
  Status check_pointer(const void*) override { return {}; }
  Result<std::unique_ptr<device::Buffer>> allocate(std::size_t bytes) override {
    return cpu_.allocate(bytes);
  }
  Result<std::int64_t> free_memory() override { return std::int64_t{64} << 20; }
  Status upload(void* destination, const void* source, std::size_t bytes) override {
    return cpu_.upload(destination, source, bytes);
  }
  Status download(void* destination, const void* source, std::size_t bytes) override {
    return cpu_.download(destination, source, bytes);
  }
  Status fill(void* destination, int byte, std::size_t bytes) override {
    return cpu_.fill(destination, byte, bytes);
  }
  Status copy(void* destination, const void* source, std::size_t bytes,
              device::Stream stream) override {
    return cpu_.copy(destination, source, bytes, stream);
  }
  Status synchronize(device::Stream) override { return {}; }
  [[nodiscard]] device::Stream own_stream() const override { return nullptr; }

  Result<double> time_ns(const std::function<Status(device::Stream)>& work) override {
    elapsed_ns_ = 0;
    DORAJIT_TRY(work(nullptr));
    return elapsed_ns_;
  }

 private:
  device::CpuDevice cpu_;
  device::DeviceInfo info_;
  std::map<std::string, Misbehaviour> misbehaviours_;
  std::map<std::string, double> times_;
  int extra_columns_ = 0;
  double elapsed_ns_ = 0;
};

}  // namespace dorajit::tests
