// A CPU device with configurable misbehaviour, a clock of its own, and configurable times for each
// config.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "kernel_templates/config.h"
#include "kernel_templates/partial_sums.h"
#include "kernel_templates/template.h"
#include "runtime/base/clock.h"
#include "runtime/device/cpu/cpu_device.h"

namespace dorajit::tests {

enum class Misbehaviour {
  kNone,
  kWrongBits,         // in the first element of the first output
  kWrongSum,          // in the last element of the sum
  kWrongSecondStage,  // the same, only where the sum has several partial sums
  kPartialsInOrder,   // the partial sums of an f32 sum are added sequentially
  kFailsToLaunch,
  kWritesBeforeOutput,   // the byte before the first output
  kWritesAfterOutput,    // the byte after the last row of the first output
  kWritesPastWorkspace,  // the byte after the workspace, if there is one
  kModifiesInput,        // the first element of the first input
  kHangs,                // until the process is killed, which happens at once
  kBreaksDevice,         // fails to launch; all later launches fail, too
  kCrashes,              // crashes the process
};

class FakeDevice final : public device::Device {
 public:
  static constexpr std::int64_t kOrdinaryTimeNs = 1'000'000;  // of a launch
  static constexpr std::int64_t kWriteTimeNs = 1'000;

  explicit FakeDevice(int processors) : info_(cpu_.info()) {
    info_.traits.processors = processors;
    info_.cache_bytes = 1 << 20;
    info_.fingerprint = "fake";
  }

  // Sets how launches of a config misbehave from now on, and their measured time.
  void plant(const kernels::Config& config, Misbehaviour misbehaviour) {
    misbehaviours_[to_text(config)] = misbehaviour;
  }
  // The same, but only after that many launches.
  void plant_after(const kernels::Config& config, Misbehaviour misbehaviour, int launches) {
    plant(config, misbehaviour);
    good_launches_[to_text(config)] = launches;
  }
  void set_time_ns(const kernels::Config& config, double nanoseconds) {
    times_[to_text(config)] = static_cast<std::int64_t>(nanoseconds);
  }
  // Only this device's work and spend() advance it. Valid as long as the device is.
  [[nodiscard]] Clock clock() const {
    return [this] { return Moment(std::chrono::nanoseconds(now_ns_)); };
  }
  // Advances the device's clock.
  void spend(std::chrono::nanoseconds time) { now_ns_ += time.count(); }
  // From now on, device.info() describes a GPU.
  void pose_as_gpu() { info_.traits.kind = kernels::DeviceKind::kCuda; }
  // Code is also compiled for that GPU, although it cannot be loaded.
  void pose_as_gpu(int major, int minor) {
    pose_as_gpu();
    info_.target = compile::cuda_target(major, minor);
    info_.traits.architecture = 10 * major + minor;
  }
  void set_fingerprint(const std::string& fingerprint) { info_.fingerprint = fingerprint; }
  void set_driver(const std::string& version) { info_.driver_version = version; }
  [[nodiscard]] int copies() const { return copies_; }
  // The largest allocation.
  [[nodiscard]] std::size_t max_allocated() const { return max_allocated_; }
  [[nodiscard]] int downloads() const { return downloads_; }
  // Every later launch covers that many additional columns.
  void stretch_rows(int columns) { extra_columns_ = columns; }

  [[nodiscard]] const device::DeviceInfo& info() const override { return info_; }

  Result<std::shared_ptr<const device::LoadedKernel>> load(
      const Artifact& artifact, const kernels::Variant& variant) override {
    return cpu_.load(artifact, variant);
  }

  Status launch(const device::LoadedKernel& kernel, const kernels::Config& config,
                const kernels::LaunchArguments& arguments, device::Stream stream) override {
    const std::string key = to_text(config);
    const auto time = times_.find(key);
    now_ns_ += time == times_.end() ? kOrdinaryTimeNs : time->second;
    const auto planted = misbehaviours_.find(key);
    auto misbehaviour = planted == misbehaviours_.end() ? Misbehaviour::kNone : planted->second;
    if (const auto good = good_launches_.find(key); good != good_launches_.end()) {
      if (good->second-- > 0) misbehaviour = Misbehaviour::kNone;
    }
    is_broken_ = is_broken_ || misbehaviour == Misbehaviour::kBreaksDevice;
    if (misbehaviour == Misbehaviour::kFailsToLaunch || is_broken_) {
      return fail(StatusCode::kDriverError, "planted launch failure");
    }
    if (misbehaviour == Misbehaviour::kHangs) ::kill(::getpid(), SIGKILL);
    if (misbehaviour == Misbehaviour::kCrashes) ::_exit(139);
    kernels::KernelArguments stretched = arguments;
    stretched.sizes[kernels::kCols] += extra_columns_;
    DORAJIT_TRY(cpu_.launch(kernel, config, stretched, stream));
    spoil(kernel.variant(), config, arguments, misbehaviour);
    write_out_of_bounds(kernel.variant(), arguments, misbehaviour);
    return {};
  }

  [[nodiscard]] bool is_capturing(device::Stream) override { return false; }
  Status check_pointer(const void*) override { return {}; }
  Result<std::unique_ptr<device::Buffer>> allocate(std::size_t bytes) override {
    max_allocated_ = std::max(max_allocated_, bytes);
    return cpu_.allocate(bytes);
  }
  Result<std::int64_t> free_memory() override { return std::int64_t{64} << 20; }
  Status upload(void* destination, const void* source, std::size_t bytes) override {
    now_ns_ += kWriteTimeNs;
    return cpu_.upload(destination, source, bytes);
  }
  Status download(void* destination, const void* source, std::size_t bytes) override {
    ++downloads_;
    return cpu_.download(destination, source, bytes);
  }
  Status fill(void* destination, int byte, std::size_t bytes) override {
    now_ns_ += kWriteTimeNs;
    return cpu_.fill(destination, byte, bytes);
  }
  Status copy(void* destination, const void* source, std::size_t bytes,
              device::Stream stream) override {
    ++copies_;
    return cpu_.copy(destination, source, bytes, stream);
  }
  Status synchronize(device::Stream) override { return {}; }
  [[nodiscard]] device::Stream own_stream() const override { return nullptr; }

  Result<double> time_ns(const device::Enqueue& before, const device::Enqueue& work) override {
    DORAJIT_TRY(before(nullptr));
    const std::int64_t start = now_ns_;
    DORAJIT_TRY(work(nullptr));
    return static_cast<double>(now_ns_ - start);
  }

 private:
  static void flip_lowest_bit(void* element) {
    auto* bytes = static_cast<unsigned char*>(element);
    bytes[0] = static_cast<unsigned char>(bytes[0] ^ 1U);
  }

  static void sum_partials_in_order(const kernels::Variant& variant, const kernels::Config& config,
                                    const kernels::KernelArguments& arguments) {
    const auto sum = static_cast<std::size_t>(variant.operation->sum_operand);
    const auto* partials = static_cast<const float*>(arguments.workspace);
    const auto layout = kernels::sum_layout(
        variant.broadcast, arguments.sizes[kernels::kRows], arguments.sizes[kernels::kCols],
        arguments.sizes[kernels::kChannels], config[kernels::kRowsOfProgram]);
    for (long long channel = 0; channel < arguments.sizes[kernels::kChannels]; ++channel) {
      float& total = static_cast<float*>(arguments.operands[sum].data)[channel];
      total = 0;
      for (long long i = 0; i < layout.count(); ++i) {
        total += partials[i * arguments.sizes[kernels::kChannels] + channel];
      }
    }
  }

  static void spoil(const kernels::Variant& variant, const kernels::Config& config,
                    const kernels::KernelArguments& arguments, Misbehaviour misbehaviour) {
    const auto& operands = variant.operation->operands;
    const bool has_second_stage =
        kernels::launch_shape(variant, config, arguments, 1).later.front().programs() > 0;
    if (misbehaviour == Misbehaviour::kPartialsInOrder && has_second_stage) {
      return sum_partials_in_order(variant, config, arguments);
    }
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].role != kernels::OperandRole::kOutput || !variant.has(i)) continue;
      auto* data = static_cast<std::byte*>(arguments.operands[i].data);
      if (misbehaviour == Misbehaviour::kWrongBits) return flip_lowest_bit(data);
      if (static_cast<int>(i) != variant.operation->sum_operand) continue;
      if (misbehaviour == Misbehaviour::kWrongSum ||
          (misbehaviour == Misbehaviour::kWrongSecondStage && has_second_stage)) {
        flip_lowest_bit(data + (arguments.sizes[kernels::kChannels] - 1) *
                                   kernels::size_in_bytes(variant.types[i]));
      }
    }
  }

  static std::size_t matrix_bytes(const kernels::Variant& variant,
                                  const kernels::KernelArguments& arguments, std::size_t operand) {
    return static_cast<std::size_t>(arguments.sizes[kernels::kRows] *
                                    arguments.operands[operand].row_stride) *
           static_cast<std::size_t>(kernels::size_in_bytes(variant.types[operand]));
  }

  // Writes outside of the kernel's outputs.
  static void write_out_of_bounds(const kernels::Variant& variant,
                                  const kernels::KernelArguments& arguments,
                                  Misbehaviour misbehaviour) {
    const auto& operands = variant.operation->operands;
    const auto first = [&](kernels::OperandRole role) {
      std::size_t i = 0;
      while (operands[i].role != role || !variant.has(i)) ++i;
      return i;
    };
    const std::size_t output = first(kernels::OperandRole::kOutput);
    auto* data = static_cast<std::byte*>(arguments.operands[output].data);
    switch (misbehaviour) {
      case Misbehaviour::kWritesBeforeOutput:
        return flip_lowest_bit(data - 1);
      case Misbehaviour::kWritesAfterOutput:
        return flip_lowest_bit(data + matrix_bytes(variant, arguments, output));
      case Misbehaviour::kWritesPastWorkspace:
        if (!variant.has_sum()) return;
        return flip_lowest_bit(
            static_cast<std::byte*>(arguments.workspace) +
            kernels::sum_workspace_bytes(variant.broadcast, arguments.sizes[kernels::kRows],
                                         arguments.sizes[kernels::kCols],
                                         arguments.sizes[kernels::kChannels],
                                         kernels::size_in_bytes(kernels::compute_type(variant))));
      case Misbehaviour::kModifiesInput:
        return flip_lowest_bit(arguments.operands[first(kernels::OperandRole::kInput)].data);
      default:
        return;
    }
  }

  device::CpuDevice cpu_;
  device::DeviceInfo info_;
  std::map<std::string, Misbehaviour> misbehaviours_;
  std::map<std::string, int> good_launches_;
  std::map<std::string, std::int64_t> times_;
  std::size_t max_allocated_ = 0;
  int extra_columns_ = 0;
  int copies_ = 0;
  int downloads_ = 0;
  bool is_broken_ = false;
  std::atomic<std::int64_t> now_ns_ = 0;
};

}  // namespace dorajit::tests
