// Fills a GPU's last-level cache with other data.
#pragma once

#include <memory>

#include "runtime/base/error.h"
#include "runtime/device/device.h"

namespace dorajit::autotune {

// Copies other data through the cache, as the layers between two launches do: afterwards part of
// the cache is clean and part must be written back, which costs the timed launch as it costs a
// caller. While the copy runs, the CPU enqueues the timed work, so that the time includes no wait
// for the CPU.
class CacheFiller {
 public:
  // Does nothing on a CPU, where rotating among operands is enough and a copy would be slow, and
  // does nothing if the memory cannot be allocated.
  explicit CacheFiller(device::Device& device);

  // Enqueues the copy.
  Status enqueue(device::Stream stream) const;

 private:
  device::Device& device_;
  std::unique_ptr<device::Buffer> buffer_;
};

}  // namespace dorajit::autotune
